# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib

from gpupack_kube.errors import Unreachable
from gpupack_operator.crew import Crew
from gpupack_operator.waitlist import Key
from gpupack_operator.work import WorkQueue

A, B = Key("team", "a"), Key("team", "b")


@contextlib.asynccontextmanager
async def working(reconcile, *, size=2):
    loop = asyncio.get_running_loop()
    crew = Crew(WorkQueue(loop.call_later), reconcile)
    task = asyncio.create_task(crew.run(size))
    yield crew
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

    async with working(reconcile) as crew:
        crew.add_all([A])
        await asyncio.sleep(0)
        crew.add_all([A])
        await asyncio.wait_for(passed.wait(), 1)
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

    async with working(reconcile) as crew:
        crew.add_all([A, B])
        await asyncio.wait_for(enough.wait(), 2)
    assert seen.count(B) == 1


async def test_a_pass_says_when_it_wants_to_look_again():
    seen = []
    twice = asyncio.Event()

    async def reconcile(key):
        seen.append(key)
        if len(seen) == 2:
            twice.set()
        return 0.01 if len(seen) == 1 else None

    async with working(reconcile) as crew:
        crew.add_all([A])
        await asyncio.wait_for(twice.wait(), 1)
    assert seen == [A, A]
