# SPDX-License-Identifier: Apache-2.0
"""The life of the process: nothing essential may die unnoticed."""

import asyncio
import time

import pytest
from starlette.applications import Starlette

from gpupack_extender.app import App, run
from gpupack_extender.gathering import GangBarrier
from gpupack_extender.metrics import Metrics
from gpupack_extender.servers import health_server, verbs_server
from gpupack_extender.settings import Serving
from gpupack_httpserver.errors import TaskEnded
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.queueing.turns import Turns


class Task:
    """Stands where a reflector or another task does."""

    def __init__(self, ends_after=3600.0):
        self.seconds = ends_after

    async def run(self):
        await asyncio.sleep(self.seconds)


def app(reflector, server=None):
    looked = asyncio.Event()
    looked.set()
    server = server or verbs_server(Starlette(), Serving(verbs_port=0))
    return App(
        reflectors={"pods": reflector},
        unconfirmed={"binds": Task(), "plans": Task()},
        tasks={"queue": Task()},
        first_look=looked,
        turns=Turns(),
        servers=(server,),
        metrics=Metrics(),
        gathering=GangBarrier(Ledger(time.monotonic)),
    )


async def test_stopping_ends_everything():
    stop = asyncio.Event()
    running = asyncio.create_task(run(app(Task()), stop))
    await asyncio.sleep(0.05)
    stop.set()
    await asyncio.wait_for(running, timeout=30)


async def test_a_waiting_notification_call_does_not_keep_the_process_from_stopping():
    stop, built = asyncio.Event(), app(Task())
    running = asyncio.create_task(run(built, stop))
    begun = await built.turns.since("", 0, seconds=1)
    waiting = asyncio.create_task(built.turns.since(begun.queue, begun.number, seconds=60))
    await asyncio.sleep(0.05)
    stop.set()
    await asyncio.wait_for(running, timeout=30)
    assert (await asyncio.wait_for(waiting, timeout=30)).all_jobs


async def test_a_watch_that_ends_ends_the_process():
    with pytest.raises(ExceptionGroup) as group:
        await asyncio.wait_for(run(app(Task(ends_after=0.05)), asyncio.Event()), timeout=30)
    assert str(group.value.exceptions[0]) == "pods ended by itself"
    assert group.group_contains(TaskEnded)


async def test_a_server_that_ends_ends_the_process():
    built = app(Task())
    built.servers[0].should_exit = True
    with pytest.raises(ExceptionGroup) as group:
        await asyncio.wait_for(run(built, asyncio.Event()), timeout=30)
    assert group.group_contains(TaskEnded, match="server on port 0 ended by itself")


async def test_a_port_that_accepts_no_more_connections_ends_the_process(monkeypatch):
    async def failing(_):
        await asyncio.sleep(0.05)
        raise ValueError("no such thing")

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_accept", failing)
    built = app(Task(), health_server(Starlette(), Serving(health_port=0)))
    with pytest.raises(ExceptionGroup) as group:
        await asyncio.wait_for(run(built, asyncio.Event()), timeout=30)
    assert group.group_contains(TaskEnded, match="server on port 0 ended by itself")


async def test_an_accept_that_fails_for_the_moment_ends_nothing(monkeypatch):
    tried = asyncio.Event()

    async def failing(_):
        tried.set()
        raise OSError("too many open files")

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_accept", failing)
    built, stop = app(Task(), health_server(Starlette(), Serving(health_port=0))), asyncio.Event()
    running = asyncio.create_task(run(built, stop))
    await asyncio.wait_for(tried.wait(), timeout=30)
    stop.set()
    await asyncio.wait_for(running, timeout=30)
