# SPDX-License-Identifier: Apache-2.0
import dataclasses

import pytest
from msgspec import structs

from gpupack_operator.decision.decide import decide
from gpupack_operator.decision.model import AskPlan, NotPlanned, PlanLater, Told, Waits


def refusal(message, reason="TooFewFreeGpus"):
    return NotPlanned(reason=reason, message=message)


@pytest.fixture
def waiting(build):
    """A job whose status says since second 10 that 3 GPUs are free."""
    job = build.gpujob()
    return build.after(job, decide(build.see(job, answer=refusal("3 free"), now=10)))


def test_another_count_alone_is_not_written_at_once_but_soon(waiting, build):
    seen = build.see(waiting, answer=refusal("2 free"), now=12, refusals=9, told=10)
    decision = decide(seen)
    assert decision.status == waiting.status
    assert decision.again_at == build.at(20)


def test_the_newer_text_does_come(waiting, build):
    decision = decide(build.see(waiting, answer=refusal("2 free"), now=20, told=10))
    assert decision.status.message == "2 free"


def test_what_the_plan_api_cannot_read_fails_the_job(build):
    answer = NotPlanned(reason="InvalidTemplate", message="cpu: 'many'", for_good=True)
    status = decide(build.see(build.gpujob(maxRestarts=9), answer=answer)).status
    assert (status.phase, status.reason, status.message) == (
        "Failed",
        "InvalidTemplate",
        "cpu: 'many'",
    )


def test_a_job_that_could_not_ask_waits_for_its_turn_and_writes_nothing(build):
    decision = decide(build.see(build.gpujob(), answer=PlanLater()))
    assert (decision.status, decision.actions) == (build.gpujob().status, ())
    assert decision.again_at == build.at(25)


def test_a_job_in_the_queue_says_why_and_looks_again_when_it_is_to(build):
    answer = Waits("BorrowingLimitExceeded", "namespace team uses 8 GPUs")
    seen = build.see(build.gpujob(), answer=answer, asked_until=build.at(40))
    decision = decide(seen)
    assert (decision.status.phase, decision.status.reason) == ("Pending", "BorrowingLimitExceeded")
    assert (decision.status.message, decision.again_at) == (answer.message, build.at(40))


def test_a_job_that_the_queue_knows_is_not_asked_for_at_every_look(build):
    seen = build.see(build.gpujob(), asked_until=build.at(40))
    assert (decide(seen).actions, decide(seen).again_at) == ((), build.at(40))
    later = dataclasses.replace(seen, now=build.at(40))
    assert decide(later).actions == (AskPlan(1),)


def test_another_reason_is_written_at_once(waiting, build):
    answer = refusal("1 failed", reason="GpuFailed")
    assert decide(build.see(waiting, answer=answer, now=11, told=10)).status.reason == "GpuFailed"


def test_a_text_that_another_operator_wrote_is_replaced_at_once(waiting, build):
    decision = decide(build.see(waiting, answer=refusal("2 free"), now=11))
    assert decision.status.message == "2 free"


def test_an_edited_spec_is_acknowledged_even_while_the_text_waits(waiting, build):
    edited = structs.replace(waiting, metadata=structs.replace(waiting.metadata, generation=2))
    status = decide(build.see(edited, answer=refusal("2 free"), now=12, told=10)).status
    assert (status.observed_generation, status.message) == (2, "3 free")


class InLine:
    """A job whose status says since second 10 that it is the hundredth."""

    def __init__(self, build):
        self.build = build
        fresh = build.gpujob()
        self.job = build.after(fresh, decide(build.see(fresh, answer=self.answer(100))))

    def answer(self, position, *, lasting="no room", text="no room"):
        return Waits("TooFewFreeGpus", text, lasting=lasting, position=position)

    def is_written(self, answer, *, after):
        """Whether the answer is written so many seconds after the last one."""
        told = Told(self.build.at(10), "no room", 100)
        seen = self.build.see(self.job, answer=answer, now=10 + after, told=told)
        return decide(seen).status.message == answer.message


@pytest.fixture
def in_line(build):
    return InLine(build)


def test_a_text_that_differs_in_times_alone_is_written_when_it_is_old(in_line):
    answer = in_line.answer(100, text="no room since 2 h")
    assert not in_line.is_written(answer, after=599)
    assert in_line.is_written(answer, after=600)


def test_a_text_that_says_something_else_is_written_soon(in_line):
    assert in_line.is_written(in_line.answer(99, lasting="1 GPU", text="1 GPU"), after=10)


def test_that_it_goes_in_next_is_not_written_over_why_it_waits(in_line):
    answer = Waits("AdmissionPending", "its turn comes", lasting="its turn comes", position=1)
    assert not in_line.is_written(answer, after=60)
    assert in_line.is_written(answer, after=600)


def test_a_job_of_which_nothing_is_told_yet_says_that_it_goes_in_next(build):
    answer = Waits("AdmissionPending", "its turn comes", lasting="its turn comes", position=1)
    assert decide(build.see(build.gpujob(), answer=answer)).status.reason == "AdmissionPending"
