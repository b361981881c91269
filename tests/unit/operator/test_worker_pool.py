# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib

from gpupack_kubeclient.errors import Unreachable
from gpupack_operator.metrics import Metrics
from gpupack_operator.plan_line import Key
from gpupack_operator.work_queue import WorkQueue
from gpupack_operator.worker_pool import WorkerPool

A, B = Key("team", "a"), Key("team", "b")


async def ignore(_key, _error, *, failures):
    del failures


@contextlib.asynccontextmanager
async def working(reconcile, *, on_failure=ignore, size=2):
    loop = asyncio.get_running_loop()
    pool = WorkerPool(WorkQueue(loop.call_later), reconcile, on_failure, Metrics())
    task = asyncio.create_task(pool.run(size))
    yield pool
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_one_job_is_in_one_worker_s_hands_only():
    running, most = 0, 0
    passed = asyncio.Event()

    async def reconcile(_key):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        passed.set()

    async with working(reconcile) as pool:
        pool.add_all([A])
        await asyncio.sleep(0)
        pool.add_all([A])
        await asyncio.wait_for(passed.wait(), 30)
    assert most == 1


async def test_a_pass_that_fails_is_repeated_and_the_others_go_on():
    seen = []
    enough = asyncio.Event()

    async def reconcile(key):
        seen.append(key)
        if seen.count(A) == 3:
            enough.set()
        if key == A:
            raise Unreachable("gone")

    async with working(reconcile) as pool:
        pool.add_all([A, B])
        await asyncio.wait_for(enough.wait(), 30)
    assert seen.count(B) == 1


async def test_each_failure_in_a_row_is_told_and_a_success_begins_anew():
    told = []
    results = iter([Unreachable("gone"), TypeError("bug"), None, TypeError("again")])
    enough = asyncio.Event()

    async def reconcile(_key):
        if error := next(results):
            raise error
        return 0.01

    async def on_failure(key, error, *, failures):
        told.append((key, type(error), failures))
        if len(told) == 3:
            enough.set()

    async with working(reconcile, on_failure=on_failure) as pool:
        pool.add_all([A])
        await asyncio.wait_for(enough.wait(), 30)
    assert told == [(A, Unreachable, 1), (A, TypeError, 2), (A, TypeError, 1)]


async def test_a_failure_that_cannot_be_told_ends_no_worker():
    seen = []
    enough = asyncio.Event()

    async def reconcile(key):
        seen.append(key)
        if len(seen) == 2:
            enough.set()
        raise TypeError("bug")

    async def on_failure(_key, _error, *, failures):
        raise TypeError(f"another, after {failures}")

    async with working(reconcile, on_failure=on_failure, size=1) as pool:
        pool.add_all([A])
        await asyncio.wait_for(enough.wait(), 30)
    assert seen == [A, A]


async def test_a_pass_says_when_it_wants_to_look_again():
    seen = []
    twice = asyncio.Event()

    async def reconcile(key):
        seen.append(key)
        if len(seen) == 2:
            twice.set()
        return 0.01 if len(seen) == 1 else None

    async with working(reconcile) as pool:
        pool.add_all([A])
        await asyncio.wait_for(twice.wait(), 30)
    assert seen == [A, A]
