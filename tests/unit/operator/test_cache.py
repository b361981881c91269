# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest
from gpujobs import read_gpujob
from msgspec import structs

from gpupack_crds import names
from gpupack_crds.gpujob_status import GpuJobStatus
from gpupack_operator.cache import Cache, CachedGpuJob
from gpupack_operator.waiting_jobs import Key

KEY = Key("team", "train")


def seen(job, number, *, uid=None, template=None, **status):
    meta = structs.replace(job.metadata, resource_version=str(number), uid=uid or job.metadata.uid)
    job = structs.replace(job, metadata=meta, status=GpuJobStatus(**status))
    return CachedGpuJob(job=job, template=template or {"spec": {}})


def altered(item, *, namespace="team", owner_references=None, **owner):
    """An object with other ownership; `owner` changes fields of its controller."""
    owners = [structs.replace(found, **owner) for found in item.metadata.owner_references]
    owners = tuple(owners) if owner_references is None else owner_references
    meta = structs.replace(item.metadata, namespace=namespace, owner_references=owners)
    return structs.replace(item, metadata=meta)


@pytest.fixture
def cache(build):
    found = Cache(gpujobs={KEY: [seen(build.gpujob(), 9)]})
    found.pods = {build.UID: [build.pod(0), build.pod(1)]}
    return found


def test_a_newer_own_write_takes_precedence_over_the_watch(cache, build):
    cache.record_write(seen(build.gpujob(), 10, attempt=1))
    assert cache.gpujob(KEY).job.status.attempt == 1
    assert cache.gpujob(KEY).template == {"spec": {}}


def test_a_newer_watch_event_takes_precedence_over_an_own_write(cache, build):
    cache.record_write(seen(build.gpujob(), 8, attempt=1))
    assert cache.gpujob(KEY).job.status.attempt == 0


def test_a_write_to_a_deleted_gpujob_of_the_same_name_is_ignored(cache, build):
    cache.record_write(seen(build.gpujob(), 8, uid="old", attempt=1))
    assert cache.gpujob(KEY).job.status.attempt == 0


def test_a_newer_gpujob_of_the_same_name_that_was_read_directly_takes_precedence(cache, build):
    cache.record_write(seen(build.gpujob(), 10, uid="new", template={"metadata": {}}))
    assert cache.gpujob(KEY).job.metadata.uid == "new"
    assert cache.gpujob(KEY).template == {"metadata": {}}


def test_the_newer_of_two_indexed_gpujobs_of_one_name_is_returned(cache, build):
    cache.gpujobs[KEY].append(seen(build.gpujob(), 10, uid="new"))
    cache.gpujobs[KEY].append(seen(build.gpujob(), 8, uid="old"))
    assert cache.gpujob(KEY).job.metadata.uid == "new"


def test_a_write_to_a_deleted_gpujob_is_forgotten(cache, build):
    cache.record_write(seen(build.gpujob(), 10, uid="new"))
    cache.mark_deleted("new")
    assert cache.gpujob(KEY).job.metadata.uid == build.UID


def test_the_watch_event_of_an_own_write_is_recognised(cache, build):
    cache.record_write(seen(build.gpujob(), 10))
    assert cache.is_echo(KEY, "10")
    assert not cache.is_echo(KEY, "11")


def test_deleted_objects_are_omitted(cache, build):
    cache.mark_deleted("pod-1-0")
    pods = cache.pods_of(build.gpujob(), [build.job()])
    assert [pod.metadata.uid for pod in pods] == ["pod-1-1"]


def test_a_deleted_object_is_remembered_while_an_index_holds_it(cache, build):
    cache.mark_deleted("pod-1-0")
    cache.forget_deleted()
    assert len(cache.pods_of(build.gpujob(), [build.job()])) == 1
    cache.pods = {}
    cache.forget_deleted()
    assert cache._deleted == set()


def test_a_job_with_the_labels_and_another_owner_is_ignored(cache, build):
    foreign = (
        altered(build.job(), namespace="other"),
        altered(build.job(), owner_references=()),
        altered(build.job(), controller=False),
        altered(build.job(), uid="uid-of-another"),
    )
    cache.jobs = {build.UID: [*foreign, build.job()]}
    assert cache.jobs_of(build.gpujob()) == (build.job(),)


def test_a_pod_with_the_labels_and_another_owner_is_ignored(cache, build):
    foreign = (
        altered(build.pod(), namespace="other"),
        altered(build.pod(), owner_references=()),
        altered(build.pod(), controller=False),
        altered(build.pod(), uid="uid-of-another", name="another"),
    )
    cache.pods = {build.UID: [*foreign, build.pod()]}
    assert cache.pods_of(build.gpujob(), [build.job()]) == (build.pod(),)


def test_a_pod_without_its_job_is_recognised_by_the_name_of_its_owner(cache, build):
    assert cache.pods_of(build.gpujob(), []) == (build.pod(0), build.pod(1))


@pytest.fixture
def ended(build):
    """A pod that was deleted and exited 0."""
    return build.pod(0, phase="Succeeded", exit_code=0, ended=9, deleted=8)


@pytest.fixture
def without_pods(cache, build):
    """Its Job is there, and no pod."""
    cache.jobs, cache.pods = {build.UID: [build.job()]}, {}
    return cache


def labelled(pod, uid):
    meta = structs.replace(pod.metadata, labels=pod.metadata.labels | {names.JOB_UID_LABEL: uid})
    return structs.replace(pod, metadata=meta)


def test_the_end_of_a_deleted_worker_is_kept_while_its_job_exists(without_pods, build, ended):
    pod = labelled(ended, build.UID)
    without_pods.on_pod_deleted(pod)
    assert without_pods.pods_of(build.gpujob(), [build.job()]) == (pod,)
    assert without_pods.pods_of(build.gpujob(), []) == ()
    without_pods.on_job_deleted(build.job())
    assert without_pods.pods_of(build.gpujob(), [build.job()]) == ()


def test_only_finished_workers_of_existing_jobs_are_kept_after_deletion(without_pods, build, ended):
    mine = labelled(ended, build.UID)
    for pod in (
        labelled(build.pod(0, deleted=8), build.UID),
        altered(mine, namespace="other"),
        altered(mine, uid="uid-of-another"),
        altered(mine, owner_references=()),
        labelled(build.pod(5000, phase="Succeeded"), build.UID),
        labelled(mine, "uid-of-another"),
        ended,
    ):
        without_pods.on_pod_deleted(pod)
    assert without_pods.pods_of(build.gpujob(), [build.job()]) == ()


def test_one_deleted_pod_is_kept_for_each_worker(without_pods, build, ended):
    pods = [labelled(build.pod(0, phase="Succeeded", said=str(n)), build.UID) for n in range(99)]
    for pod in (labelled(ended, build.UID), *pods):
        without_pods.on_pod_deleted(pod)
    assert len(without_pods.pods_of(build.gpujob(), [build.job()])) == 1


def test_the_template_is_kept_as_it_was_written():
    template = {"spec": {"volumes": [{"name": "x"}], "containers": [{"name": "worker"}]}}
    body = {"metadata": {"name": "train"}, "spec": {"gpus": 1, "template": template}}
    assert read_gpujob(body).template == template


def test_a_gpujob_that_violates_the_schema_is_refused():
    with pytest.raises(msgspec.ValidationError):
        read_gpujob({"metadata": {"name": "train"}, "spec": {"gpus": "many"}})
