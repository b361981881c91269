# SPDX-License-Identifier: Apache-2.0
import asyncio
import heapq
import itertools

import pytest

from gpupack_operator.work_queue import WorkQueue


class VirtualClock:
    """`call_later` whose time passes when the test says so."""

    def __init__(self):
        self.now = 0.0
        self._sequence = itertools.count()
        self._timers = []

    def call_later(self, seconds, call):
        timer = VirtualTimer(call)
        heapq.heappush(self._timers, (self.now + seconds, next(self._sequence), timer))
        return timer

    def advance(self, seconds):
        self.now += seconds
        while self._timers and self._timers[0][0] <= self.now:
            heapq.heappop(self._timers)[2].fire()


class VirtualTimer:
    def __init__(self, call):
        self._call = call

    def cancel(self):
        self._call = lambda: None

    def fire(self):
        self._call()


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def queue(clock):
    return WorkQueue(clock.call_later)


async def taken(queue):
    """All keys that can be taken now."""
    keys = []
    while True:
        try:
            keys.append(await asyncio.wait_for(queue.get(), 0.01))
        except TimeoutError:
            return keys


async def test_keys_are_returned_in_order_and_once(queue):
    for key in ("b", "a", "b"):
        queue.add(key)
    assert await taken(queue) == ["b", "a"]


async def test_a_key_in_work_is_given_to_no_other_worker(queue):
    queue.add("a")
    await queue.get()
    queue.add("a")
    assert await taken(queue) == []


async def test_a_key_added_while_in_work_is_returned_once_more(queue):
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add("a")
    queue.done("a")
    assert await taken(queue) == ["a"]


async def test_a_delayed_key_is_returned_after_its_delay(queue, clock):
    queue.add_later("a", 5)
    clock.advance(4)
    assert await taken(queue) == []
    clock.advance(1)
    assert await taken(queue) == ["a"]


async def test_the_newest_delay_counts(queue, clock):
    queue.add_later("a", 5)
    queue.add_later("a", 50)
    clock.advance(10)
    assert await taken(queue) == []


async def test_a_key_returned_early_is_not_due_again(queue, clock):
    queue.add_later("a", 5)
    queue.add("a")
    assert await taken(queue) == ["a"]
    queue.done("a")
    clock.advance(10)
    assert await taken(queue) == []


async def test_a_new_key_wakes_a_waiting_worker(queue):
    waiter = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    assert await asyncio.wait_for(waiter, 30) == "a"
