# SPDX-License-Identifier: Apache-2.0
"""Notifications of the queue, over a real connection."""

import asyncio
import contextlib

import fake_api
import pytest
from aiohttp import web

from gpupack_operator import turns
from gpupack_operator.settings import PlanSettings
from gpupack_operator.turns import TurnListener
from gpupack_operator.waiting_jobs import Key

CALL = {"queue": "q1", "number": 1, "jobs": [{"namespace": "team", "name": "train"}]}


class Line:
    """Records its notifications."""

    def __init__(self):
        self.notified = []
        self.stops = []
        self.news = asyncio.Event()

    def notify(self, key):
        self.notified.append(key)
        self.news.set()

    def ordered(self, heard):
        self.stops.append([each.attempt for each in (*heard.stops, *heard.drained)])

    def notify_all(self):
        self.notified.append("all")
        self.news.set()


@pytest.fixture
def listening(tmp_path, monkeypatch):
    """Answers are given in order; then none comes."""
    (tmp_path / "token").write_text("secret\n")
    monkeypatch.setattr(turns, "PAUSE_SECONDS", 0.01)

    @contextlib.asynccontextmanager
    async def serving(*answers):
        received, left = [], list(answers)

        async def answer(request):
            received.append((dict(request.query), request.headers["Authorization"]))
            if not left:
                await asyncio.sleep(60)
            status, body = left.pop(0)
            return web.json_response(body, status=status)

        app = web.Application()
        app.router.add_get("/v1beta1/turns", answer)
        async with fake_api.serving(app) as url:
            line = Line()
            settings = PlanSettings(url=url, ca=None, token=tmp_path / "token")
            running = asyncio.create_task(TurnListener(settings, line, line.ordered).run())
            try:
                yield line, received
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    return serving


async def heard(line, count):
    async with asyncio.timeout(30):
        while len(line.notified) < count:
            line.news.clear()
            await line.news.wait()
    return line.notified


async def wait_for_calls(received, count):
    async with asyncio.timeout(30):
        while len(received) < count:
            await asyncio.sleep(0.01)


async def test_a_notification_wakes_a_job_and_the_next_call_follows(listening):
    async with listening((200, CALL)) as (line, received):
        assert await heard(line, 1) == [Key("team", "train")]
        await wait_for_calls(received, 2)
    assert [query for query, _ in received] == [
        {"queue": "", "number": "0"},
        {"queue": "q1", "number": "1"},
    ]
    assert received[0][1] == "Bearer secret"


async def test_a_restarted_queue_makes_all_jobs_request_again(listening):
    async with listening((200, {"queue": "q2", "number": 0, "allJobs": True})) as (line, _):
        assert await heard(line, 1) == ["all"]


async def test_failed_calls_and_invalid_answers_are_logged_once_and_retried(listening, caplog):
    problem = {"reason": "NotReady", "message": "settling"}
    answers = ((503, problem), (503, problem), (200, {"queue": 7}), (200, CALL))
    async with listening(*answers) as (line, _):
        assert await heard(line, 1) == [Key("team", "train")]
    said = [record.message for record in caplog.records]
    assert sum("settling" in each for each in said) == 1


async def test_each_answer_replaces_all_orders(listening):
    stop = {"attempt": "uid/1", "reason": "InCohortFairSharing", "namespace": "team", "pod": "p"}
    drained = {"attempt": "uid/2", "node": "a", "cause": "fan"}
    orders = CALL | {"stops": [stop], "drained": [drained]}
    async with listening((200, orders), (200, CALL)) as (line, received):
        async with asyncio.timeout(30):
            while len(received) < 3:
                await asyncio.sleep(0.01)
    assert line.stops == [["uid/1", "uid/2"], []]
