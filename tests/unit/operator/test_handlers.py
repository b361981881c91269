# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest

from gpupack_operator import handlers, watches
from gpupack_operator.hearing import Ear
from gpupack_operator.waitlist import Key, Waitlist
from gpupack_operator.work import WorkQueue
from gpupack_operator.world import World

TRAIN = Key("team", "train")


def gpujob(*, version="1", **spec):
    meta = {"name": "train", "namespace": "team", "uid": "u", "resourceVersion": version}
    return {"metadata": meta, "spec": {"gpus": 1, **spec}}


@pytest.fixture
async def queue():
    return WorkQueue(asyncio.get_running_loop().call_later)


@pytest.fixture
async def world():
    return World()


@pytest.fixture
async def gpujobs(queue, world):
    return watches.gpujobs_of(world, Ear(queue, world, Waitlist(queue.add)))


async def test_an_event_brings_the_world_up_to_date_and_its_job_into_the_queue(
    gpujobs, queue, world
):
    handlers.hear(gpujobs, gpujob(), gone=False)
    handlers.hear(gpujobs, gpujob(version="2", workers=3), gone=False)
    assert world.gpujob(TRAIN).job.spec.workers == 3
    assert await queue.get() == TRAIN


async def test_a_job_that_is_gone_is_looked_at_once_more(gpujobs, queue, world):
    handlers.hear(gpujobs, gpujob(), gone=False)
    handlers.hear(gpujobs, gpujob(), gone=True)
    assert world.gpujob(TRAIN) is None
    assert await queue.get() == TRAIN


async def test_a_job_that_does_not_follow_the_schema_is_left_out_and_said(gpujobs, world, caplog):
    handlers.hear(gpujobs, gpujob(workers="many"), gone=False)
    assert world.keys() == ()
    assert "GPUJob team/train cannot be read" in caplog.text


def test_kopf_writes_nothing_and_keeps_no_index_of_its_own():
    registry = handlers.registry({}, in_cluster=False)
    chosen = handlers.settings()
    assert not registry._indexing.get_all_handlers()
    assert not registry._changing.get_all_handlers()
    assert not registry._spawning.get_all_handlers()
    assert not chosen.posting.enabled
