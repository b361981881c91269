# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest

from gpupack_operator import handlers, watches
from gpupack_operator.cache import Cache
from gpupack_operator.event_router import EventRouter
from gpupack_operator.kopf_session import GpuJobStream
from gpupack_operator.nodes_bounds import Bounds, NodesBounds
from gpupack_operator.plan_line import Key, PlanLine
from gpupack_operator.preemptions import Preemptions
from gpupack_operator.work_queue import WorkQueue

TRAIN = Key("team", "train")


def gpujob(*, version="1", **spec):
    meta = {"name": "train", "namespace": "team", "uid": "u", "resourceVersion": version}
    return {"metadata": meta, "spec": {"gpus": 1, **spec}}


@pytest.fixture
async def queue():
    return WorkQueue(asyncio.get_running_loop().call_later)


@pytest.fixture
async def cache():
    return Cache()


@pytest.fixture
async def gpujobs(queue, cache):
    return watches.gpujobs_of(
        cache,
        EventRouter(
            queue, cache, PlanLine(queue.add), Preemptions(), NodesBounds(Bounds(), queue.add)
        ),
    )


async def test_an_event_brings_the_world_up_to_date_and_its_job_into_the_queue(
    gpujobs, queue, cache
):
    handlers.take(gpujobs, GpuJobStream(), gpujob(), gone=False)
    handlers.take(gpujobs, GpuJobStream(), gpujob(version="2", workers=3), gone=False)
    assert cache.gpujob(TRAIN).job.spec.workers == 3
    assert await queue.get() == TRAIN


async def test_a_job_that_is_gone_is_looked_at_once_more(gpujobs, queue, cache):
    handlers.take(gpujobs, GpuJobStream(), gpujob(), gone=False)
    handlers.take(gpujobs, GpuJobStream(), gpujob(), gone=True)
    assert cache.gpujob(TRAIN) is None
    assert await queue.get() == TRAIN


async def test_a_job_that_does_not_follow_the_schema_is_left_out_and_said(gpujobs, cache, caplog):
    stream = GpuJobStream()
    handlers.take(gpujobs, stream, gpujob(workers="many"), gone=False)
    assert (cache.keys(), stream.unreadable) == ((), 1)
    assert list(stream.passed_over) == ["team/train"]
    assert "GPUJob team/train is passed over" in caplog.text
    handlers.take(gpujobs, stream, gpujob(version="2"), gone=False)
    assert list(stream.passed_over) == []


def test_kopf_writes_nothing_and_keeps_no_index_of_its_own():
    registry = handlers.registry({}, GpuJobStream(), {})
    chosen = handlers.settings()
    assert not registry._indexing.get_all_handlers()
    assert not registry._changing.get_all_handlers()
    assert not registry._spawning.get_all_handlers()
    assert not chosen.posting.enabled


def test_the_api_server_gives_no_object_the_finalizer_that_kopf_would_take_off():
    """A qualified name has letters, digits, `-`, `_` and `.`, and a prefix before a slash."""
    assert " " in handlers.settings().persistence.finalizer
