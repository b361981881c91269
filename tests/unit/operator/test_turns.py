# SPDX-License-Identifier: Apache-2.0
"""Hearing whose turn has come, over a real connection."""

import asyncio
import contextlib

import fake_api
import pytest
from aiohttp import web

from gpupack_operator import turns
from gpupack_operator.plan_line import Key
from gpupack_operator.settings import PlanSettings
from gpupack_operator.turns import TurnListener

CALL = {"queue": "q1", "number": 1, "jobs": [{"namespace": "team", "name": "train"}]}


class Line:
    """Notes what it is told."""

    def __init__(self):
        self.told = []
        self.stops = []
        self.news = asyncio.Event()

    def called(self, key):
        self.told.append(key)
        self.news.set()

    def ordered(self, heard):
        self.stops.append([each.attempt for each in (*heard.stops, *heard.drained)])

    def ask_anew(self):
        self.told.append("anew")
        self.news.set()


@pytest.fixture
def listening(tmp_path, monkeypatch):
    """Answers are given in order; then none comes."""
    (tmp_path / "token").write_text("secret\n")
    monkeypatch.setattr(turns, "PAUSE_SECONDS", 0.01)

    @contextlib.asynccontextmanager
    async def serving(*answers):
        asked, left = [], list(answers)

        async def answer(request):
            asked.append((dict(request.query), request.headers["Authorization"]))
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
                yield line, asked
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    return serving


async def heard(line, count):
    async with asyncio.timeout(30):
        while len(line.told) < count:
            line.news.clear()
            await line.news.wait()
    return line.told


async def asked_so_often(asked, count):
    async with asyncio.timeout(30):
        while len(asked) < count:
            await asyncio.sleep(0.01)


async def test_a_job_whose_turn_has_come_is_called_and_the_next_is_asked_for(listening):
    async with listening((200, CALL)) as (line, asked):
        assert await heard(line, 1) == [Key("team", "train")]
        await asked_so_often(asked, 2)
    assert [query for query, _ in asked] == [
        {"queue": "", "number": "0"},
        {"queue": "q1", "number": "1"},
    ]
    assert asked[0][1] == "Bearer secret"


async def test_a_queue_that_begins_anew_has_all_ask(listening):
    async with listening((200, {"queue": "q2", "number": 0, "allJobs": True})) as (line, _):
        assert await heard(line, 1) == ["anew"]


async def test_no_answer_and_nonsense_are_outlived(listening, caplog):
    problem = {"reason": "NotReady", "message": "settling"}
    answers = ((503, problem), (503, problem), (200, {"queue": 7}), (200, CALL))
    async with listening(*answers) as (line, _):
        assert await heard(line, 1) == [Key("team", "train")]
    said = [record.message for record in caplog.records]
    assert sum("settling" in each for each in said) == 1


async def test_attempts_that_are_to_end_are_told_each_time_all_of_them(listening):
    stop = {"attempt": "uid/1", "reason": "InCohortFairSharing", "namespace": "team", "pod": "p"}
    drained = {"attempt": "uid/2", "node": "a", "cause": "fan"}
    orders = CALL | {"stops": [stop], "drained": [drained]}
    async with listening((200, orders), (200, CALL)) as (line, asked):
        async with asyncio.timeout(30):
            while len(asked) < 3:
                await asyncio.sleep(0.01)
    assert line.stops == [["uid/1", "uid/2"], []]
