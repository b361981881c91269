# SPDX-License-Identifier: Apache-2.0
"""Limits on concurrent questions, and what is kept of an answer."""

import asyncio
import threading

import pytest

import gpupack_apiserver.questions as module
from gpupack_apiserver.questions import Questions
from gpupack_httpserver.errors import Denied
from gpupack_httpserver.user import User
from gpupack_scheduler.queueing.what_if import Answer, prepare_explain


@pytest.fixture
def questions(model):
    return Questions(model.queue_copy, is_known=lambda: True)


@pytest.fixture
def held():
    """Return an event before which no question is answered."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def ask(questions, held):
    """Return a function that asks a question as a user; `held` releases the answers."""

    def wait(_):
        assert held.wait(30)
        return Answer(waiting=7)

    return lambda name: asyncio.ensure_future(
        questions.answer(User(name), lambda: prepare_explain(questions.queue_copy), wait)
    )


async def test_a_user_has_one_question_at_a_time(ask, held):
    first = ask("ada")
    await asyncio.sleep(0)
    with pytest.raises(Denied, match="ada has another request in progress") as refused:
        await ask("ada")
    assert refused.value.status == 429
    other = ask("bob")
    held.set()
    assert [each.waiting for each in await asyncio.gather(first, other)] == [7, 7]
    assert (await ask("ada")).waiting == 7


async def test_service_accounts_of_a_namespace_count_as_one_user(ask, held):
    first = ask("system:serviceaccount:team:one")
    await asyncio.sleep(0)
    with pytest.raises(Denied):
        await ask("system:serviceaccount:team:two")
    held.set()
    await first


async def test_the_number_of_waiting_questions_is_limited(ask, held):
    waiting = [ask(f"user-{number}") for number in range(module.MAX_QUESTIONS)]
    await asyncio.sleep(0)
    with pytest.raises(Denied, match="16 requests are in progress") as refused:
        await ask("one-more")
    assert refused.value.status == 429
    held.set()
    await asyncio.gather(*waiting)


async def test_a_failed_question_does_not_block_the_next(questions):
    def fails(_):
        raise RuntimeError("no answer")

    for _ in range(2):
        with pytest.raises(RuntimeError, match="no answer"):
            await questions.answer(
                User("ada"), lambda: prepare_explain(questions.queue_copy), fails
            )
