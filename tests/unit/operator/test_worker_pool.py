# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib

from gpupack_kubeclient.errors import Unreachable
from gpupack_operator.metrics import Metrics
from gpupack_operator.waiting_jobs import Key
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


async def test_one_worker_at_a_time_reconciles_a_job():
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


async def test_a_failed_pass_is_repeated_and_others_continue():
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


async def test_consecutive_failures_are_counted_until_a_success():
    failed = []
    results = iter([Unreachable("gone"), TypeError("bug"), None, TypeError("again")])
    enough = asyncio.Event()

    async def reconcile(_key):
        if error := next(results):
            raise error
        return 0.01

    async def on_failure(key, error, *, failures):
        failed.append((key, type(error), failures))
        if len(failed) == 3:
            enough.set()

    async with working(reconcile, on_failure=on_failure) as pool:
        pool.add_all([A])
        await asyncio.wait_for(enough.wait(), 30)
    assert failed == [(A, Unreachable, 1), (A, TypeError, 2), (A, TypeError, 1)]


async def test_an_error_while_reporting_a_failure_ends_no_worker():
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


async def test_a_pass_decides_when_the_next_one_follows():
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
