# SPDX-License-Identifier: Apache-2.0
import dataclasses

import pytest
from msgspec import structs

from gpupack_operator.decision.decide import decide
from gpupack_operator.decision.model import (
    NoPlan,
    PlannerBusy,
    PlanPending,
    RequestPlan,
    WaitMessage,
)


def refusal(message, reason="TooFewFreeGpus"):
    return NoPlan(reason=reason, message=message)


@pytest.fixture
def waiting(build):
    """A job whose status says since second 10 that 3 GPUs are free."""
    job = build.gpujob()
    return build.after(job, decide(build.see(job, answer=refusal("3 free"), now=10)))


def test_a_changed_count_is_written_after_a_delay(waiting, build):
    seen = build.see(waiting, answer=refusal("2 free"), now=12, request_failures=9, wait_message=10)
    decision = decide(seen)
    assert decision.status == waiting.status
    assert decision.again_at == build.at(20)


def test_a_newer_message_is_written_after_the_delay(waiting, build):
    decision = decide(build.see(waiting, answer=refusal("2 free"), now=20, wait_message=10))
    assert decision.status.message == "2 free"


def test_a_request_that_the_plan_api_cannot_read_fails_the_job(build):
    answer = NoPlan(reason="InvalidTemplate", message="cpu: 'many'", permanent=True)
    status = decide(build.see(build.gpujob(maxRestarts=9), answer=answer)).status
    assert (status.phase, status.reason, status.message) == (
        "Failed",
        "InvalidTemplate",
        "cpu: 'many'",
    )


def test_a_job_that_finds_another_being_planned_writes_nothing(build):
    decision = decide(build.see(build.gpujob(), answer=PlannerBusy()))
    assert (decision.status, decision.actions) == (build.gpujob().status, ())
    assert decision.again_at == build.at(25)


def test_a_queued_job_reports_the_reason_and_the_next_request(build):
    answer = PlanPending("BorrowingLimitExceeded", "namespace team uses 8 GPUs")
    seen = build.see(build.gpujob(), answer=answer, next_request_at=build.at(40))
    decision = decide(seen)
    assert (decision.status.phase, decision.status.reason) == ("Pending", "BorrowingLimitExceeded")
    assert (decision.status.message, decision.again_at) == (answer.message, build.at(40))


def test_no_plan_is_requested_while_the_last_answer_is_valid(build):
    seen = build.see(build.gpujob(), next_request_at=build.at(40))
    assert (decide(seen).actions, decide(seen).again_at) == ((), build.at(40))
    later = dataclasses.replace(seen, now=build.at(40))
    assert decide(later).actions == (RequestPlan(1),)


def test_another_reason_is_written_at_once(waiting, build):
    answer = refusal("1 failed", reason="GpuFailed")
    decision = decide(build.see(waiting, answer=answer, now=11, wait_message=10))
    assert decision.status.reason == "GpuFailed"


def test_a_message_of_another_operator_is_replaced_at_once(waiting, build):
    decision = decide(build.see(waiting, answer=refusal("2 free"), now=11))
    assert decision.status.message == "2 free"


def test_an_edited_spec_is_acknowledged_while_the_message_is_delayed(waiting, build):
    edited = structs.replace(waiting, metadata=structs.replace(waiting.metadata, generation=2))
    status = decide(build.see(edited, answer=refusal("2 free"), now=12, wait_message=10)).status
    assert (status.observed_generation, status.message) == (2, "3 free")


class InLine:
    """A job whose status says since second 10 that it is the hundredth."""

    def __init__(self, build):
        self.build = build
        fresh = build.gpujob()
        self.job = build.after(fresh, decide(build.see(fresh, answer=self.answer(100))))

    def answer(self, position, *, lasting="no room", text="no room"):
        return PlanPending("TooFewFreeGpus", text, lasting=lasting, position=position)

    def is_written(self, answer, *, after):
        """Whether the answer is written so many seconds after the last one."""
        message = WaitMessage(self.build.at(10), "no room", 100)
        seen = self.build.see(self.job, answer=answer, now=10 + after, wait_message=message)
        return decide(seen).status.message == answer.message


@pytest.fixture
def in_line(build):
    return InLine(build)


def test_a_message_that_differs_only_in_times_is_written_late(in_line):
    answer = in_line.answer(100, text="no room since 2 h")
    assert not in_line.is_written(answer, after=599)
    assert in_line.is_written(answer, after=600)


def test_a_different_message_is_written_soon(in_line):
    assert in_line.is_written(in_line.answer(99, lasting="1 GPU", text="1 GPU"), after=10)


def test_a_pending_admission_does_not_replace_the_reason_for_waiting(in_line):
    answer = PlanPending("AdmissionPending", "its turn comes", lasting="its turn comes", position=1)
    assert not in_line.is_written(answer, after=60)
    assert in_line.is_written(answer, after=600)


def test_a_job_without_a_message_reports_its_pending_admission(build):
    answer = PlanPending("AdmissionPending", "its turn comes", lasting="its turn comes", position=1)
    assert decide(build.see(build.gpujob(), answer=answer)).status.reason == "AdmissionPending"
