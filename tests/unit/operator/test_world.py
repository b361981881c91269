# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest
from msgspec import structs

from gpupack_crds.gpujob_status import GpuJobStatus
from gpupack_operator.waitlist import Key
from gpupack_operator.world import Seen, World, read_gpujob

KEY = Key("team", "train")


def version(job, number, **status):
    meta = structs.replace(job.metadata, resource_version=str(number))
    return structs.replace(job, metadata=meta, status=GpuJobStatus(**status))


@pytest.fixture
def world(build):
    found = World(gpujobs={KEY: [Seen(job=version(build.gpujob(), 9), template={"spec": {}})]})
    found.pods = {build.UID: [build.pod(0), build.pod(1)]}
    return found


def test_our_own_newer_write_wins_over_the_watch(world, build):
    world.wrote(version(build.gpujob(), 10, attempt=1))
    assert world.gpujob(KEY).job.status.attempt == 1
    assert world.gpujob(KEY).template == {"spec": {}}


def test_the_watch_wins_once_it_has_caught_up(world, build):
    world.wrote(version(build.gpujob(), 8, attempt=1))
    assert world.gpujob(KEY).job.status.attempt == 0


def test_a_write_to_a_namesake_that_is_gone_does_not_count(world, build):
    other = version(build.gpujob(), 99, attempt=1)
    world.wrote(structs.replace(other, metadata=structs.replace(other.metadata, uid="old")))
    assert world.gpujob(KEY).job.status.attempt == 0


def test_the_echo_of_our_own_write_is_recognised(world, build):
    world.wrote(version(build.gpujob(), 10))
    assert world.is_echo(KEY, "10")
    assert not world.is_echo(KEY, "11")


def test_ghosts_are_left_out(world, build):
    world.mark_gone("pod-1-0")
    assert [pod.metadata.uid for pod in world.pods_of(build.UID)] == ["pod-1-1"]


def test_the_template_is_kept_as_it_was_written():
    template = {"spec": {"volumes": [{"name": "x"}], "containers": [{"name": "worker"}]}}
    body = {"metadata": {"name": "train"}, "spec": {"gpus": 1, "template": template}}
    assert read_gpujob(body).template == template


def test_what_does_not_follow_the_schema_is_refused():
    with pytest.raises(msgspec.ValidationError):
        read_gpujob({"metadata": {"name": "train"}, "spec": {"gpus": "many"}})
