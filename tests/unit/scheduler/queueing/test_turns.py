# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest

from gpupack_scheduler.queueing.turns import MAX_TURNS, Turns


@pytest.fixture
def turns():
    return Turns()


async def begun(turns):
    """Return the queue's name and number as a new client gets them."""
    heard = await turns.since("", 0, seconds=1)
    assert heard.all_jobs
    return heard.queue, heard.number


async def test_past_notifications_are_returned_at_once_and_in_order(turns):
    queue, number = await begun(turns)
    turns.notify("team", "a")
    turns.notify("team", "b")
    heard = await turns.since(queue, number, seconds=10)
    assert ([job.name for job in heard.jobs], heard.number, heard.all_jobs) == (
        ["a", "b"],
        2,
        False,
    )
    assert [job.name for job in (await turns.since(queue, 1, seconds=10)).jobs] == ["b"]


async def test_a_waiting_client_gets_the_first_notification(turns):
    queue, number = await begun(turns)
    waiting = [asyncio.create_task(turns.since(queue, number, seconds=10)) for _ in range(3)]
    await asyncio.sleep(0.01)
    turns.notify("team", "a")
    async with asyncio.timeout(30):
        assert [len((await each).jobs) for each in waiting] == [1, 1, 1]


async def test_without_notifications_the_answer_is_empty(turns):
    queue, number = await begun(turns)
    heard = await turns.since(queue, number, seconds=0.01)
    assert (heard.jobs, heard.all_jobs, heard.number) == ((), False, number)


async def test_a_restarted_queue_notifies_waiting_clients(turns):
    queue, number = await begun(turns)
    waiting = asyncio.create_task(turns.since(queue, number, seconds=10))
    await asyncio.sleep(0.01)
    turns.begin()
    async with asyncio.timeout(30):
        heard = await waiting
    assert heard.all_jobs
    assert heard.queue != queue


async def test_a_client_that_missed_too_many_notifications_lists_all_jobs(turns):
    queue, number = await begun(turns)
    for _ in range(MAX_TURNS + 1):
        turns.notify("team", "a")
    assert (await turns.since(queue, number, seconds=1)).all_jobs
    assert not (await turns.since(queue, number + 1, seconds=1)).all_jobs


async def test_a_number_of_the_future_is_no_number_of_ours(turns):
    queue, _ = await begun(turns)
    assert (await turns.since(queue, 7, seconds=1)).all_jobs
