# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest

from gpupack_operator import handlers, watches
from gpupack_operator.cache import Cache
from gpupack_operator.event_router import EventRouter
from gpupack_operator.kopf_session import GpuJobStream
from gpupack_operator.nodes_limits import NodesLimits, NodesRequestLimiter
from gpupack_operator.preemptions import Preemptions
from gpupack_operator.waiting_jobs import Key, WaitingJobs
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
            queue,
            cache,
            WaitingJobs(queue.add),
            Preemptions(),
            NodesRequestLimiter(NodesLimits(), queue.add),
        ),
    )


async def test_an_event_updates_the_cache_and_queues_its_gpujob(gpujobs, queue, cache):
    handlers.process_event(gpujobs, GpuJobStream(), gpujob(), gone=False)
    handlers.process_event(gpujobs, GpuJobStream(), gpujob(version="2", workers=3), gone=False)
    assert cache.gpujob(TRAIN).job.spec.workers == 3
    assert await queue.get() == TRAIN


async def test_a_deleted_gpujob_is_queued_once_more(gpujobs, queue, cache):
    handlers.process_event(gpujobs, GpuJobStream(), gpujob(), gone=False)
    handlers.process_event(gpujobs, GpuJobStream(), gpujob(), gone=True)
    assert cache.gpujob(TRAIN) is None
    assert await queue.get() == TRAIN


async def test_a_gpujob_that_violates_the_schema_is_skipped_and_logged(gpujobs, cache, caplog):
    stream = GpuJobStream()
    handlers.process_event(gpujobs, stream, gpujob(workers="many"), gone=False)
    assert (cache.keys(), stream.unreadable) == ((), 1)
    assert list(stream.skipped) == ["team/train"]
    assert "GPUJob team/train is skipped" in caplog.text
    handlers.process_event(gpujobs, stream, gpujob(version="2"), gone=False)
    assert list(stream.skipped) == []


def test_kopf_writes_nothing_and_keeps_no_index_of_its_own():
    registry = handlers.registry({}, GpuJobStream(), {})
    chosen = handlers.settings()
    assert not registry._indexing.get_all_handlers()
    assert not registry._changing.get_all_handlers()
    assert not registry._spawning.get_all_handlers()
    assert not chosen.posting.enabled


def test_the_api_server_accepts_no_object_with_the_finalizer_of_kopf():
    """A qualified name has letters, digits, `-`, `_` and `.`, and a prefix before a slash."""
    assert " " in handlers.settings().persistence.finalizer
