# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib

import msgspec
import pytest
from gpujobs import read_gpujob

from gpupack_crds import names
from gpupack_operator import watches
from gpupack_operator.cache import Cache
from gpupack_operator.event_router import EventRouter
from gpupack_operator.nodes_limits import NodesLimits, NodesRequestLimiter
from gpupack_operator.preemptions import Preemptions
from gpupack_operator.waiting_jobs import Key, WaitingJobs
from gpupack_operator.work_queue import WorkQueue

GPUJOBS = "/apis/gpupack.dev/v1beta1/gpujobs"
OLD_JOBS = 2_000


def gpujob(name, **spec):
    meta = {"name": name, "namespace": "team", "uid": f"uid-of-{name}", "resourceVersion": "1"}
    return {"metadata": meta, "spec": {"gpus": 1, **spec}}


class IgnoringRouter:
    """Router that ignores all events."""

    def on_gpujob(self, seen, *, gone):
        pass


@contextlib.asynccontextmanager
async def watching(server):
    """Start all watches; yield the cache and the work queue once they have synced."""
    queue = WorkQueue(asyncio.get_running_loop().call_later)
    cache, line = Cache(), WaitingJobs(queue.add)
    router = EventRouter(
        queue, cache, line, Preemptions(), NodesRequestLimiter(NodesLimits(), queue.add)
    )
    gpujobs = watches.gpujobs_of(cache, router)
    found = watches.reflectors(server.api, cache, router, namespace="")
    tasks = [asyncio.create_task(reflector.run()) for reflector in found.values()]
    try:
        async with asyncio.timeout(30):
            await watches.list_once(server.api, gpujobs, namespace="")
            for reflector in found.values():
                await reflector.synced.wait()
        yield cache, queue
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture(autouse=True)
def nothing_else(server):
    """Lists of the other kinds, with an object that belongs to no GPUJob."""
    for path in ("/apis/batch/v1/jobs", "/api/v1/pods"):
        server.put(f"{path}/other", {"metadata": {"name": "other", "uid": path}})


async def test_a_job_is_found_by_its_name_with_its_whole_template(server):
    template = {"spec": {"hostNetwork": True}}
    server.put(f"{GPUJOBS}/train", gpujob("train", template=template))
    async with watching(server) as (cache, queue):
        assert cache.gpujob(Key("team", "train")).template == template
        assert await queue.get() == Key("team", "train")


async def test_an_invalid_gpujob_does_not_affect_others(server):
    server.put(f"{GPUJOBS}/broken", gpujob("broken", workers="many"))
    server.put(f"{GPUJOBS}/train", gpujob("train"))
    async with watching(server) as (cache, _):
        assert cache.keys() == (Key("team", "train"),)


async def test_a_job_received_before_the_list_is_kept(server):
    cache = Cache()
    gpujobs = watches.gpujobs_of(cache, IgnoringRouter())
    gpujobs.upsert(read_gpujob(gpujob("younger")))
    server.put(f"{GPUJOBS}/train", gpujob("train"))
    async with asyncio.timeout(30):
        await watches.list_once(server.api, gpujobs, namespace="")
    assert set(cache.keys()) == {Key("team", "younger"), Key("team", "train")}


async def test_children_are_found_by_their_job_s_uid(server, build):
    server.put(f"{GPUJOBS}/train", gpujob("train"))
    labels = {names.JOB_LABEL: "train", names.JOB_UID_LABEL: build.UID}
    meta = {"name": "train-1", "namespace": "team", "uid": "1", "labels": labels}
    server.put("/apis/batch/v1/jobs/train-1", {"metadata": meta})
    server.put("/api/v1/pods/train-1-0", {"metadata": meta})
    async with watching(server) as (cache, queue):
        assert [len(index[build.UID]) for index in (cache.jobs, cache.pods)] == [1, 1]
        assert await queue.get() == Key("team", "train")


async def test_the_end_of_a_worker_with_a_deleted_pod_is_kept(server, build):
    server.put(f"{GPUJOBS}/train", gpujob("train") | {"metadata": {"uid": build.UID}})
    labels = {names.JOB_LABEL: "train", names.JOB_UID_LABEL: build.UID}
    job = msgspec.to_builtins(build.job())
    server.put(
        "/apis/batch/v1/jobs/train-1", job | {"metadata": job["metadata"] | {"labels": labels}}
    )
    pod = msgspec.to_builtins(build.pod(phase="Succeeded", exit_code=0, ended=9, deleted=8))
    pod["metadata"]["labels"] |= labels
    server.add_pod(pod)
    async with watching(server) as (cache, _):
        async with asyncio.timeout(20):
            while server.watches < len(("jobs", "pods")):
                await asyncio.sleep(0.01)
            server.remove_pod(pod)
            while cache.pods.get(build.UID):
                await asyncio.sleep(0.01)
        (found,) = cache.pods_of(build.gpujob(), [build.job()])
        assert found.status.phase == "Succeeded"


async def test_the_time_until_all_jobs_are_known_is_linear(server):
    """A listener that waits for each of n objects by waking n others needs a minute for these."""
    for number in range(OLD_JOBS):
        server.put(f"{GPUJOBS}/old-{number}", gpujob(f"old-{number}"))
    async with watching(server) as (cache, _):
        assert len(cache.keys()) == OLD_JOBS
