# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_operator.decision.decide import decide
from gpupack_operator.decision.model import NoPlan
from gpupack_operator.decision.notices import notices


def event_reasons(old, new):
    return [(notice.type, notice.reason) for notice in notices(old, new.status)]


def test_the_event_of_an_admission_names_the_nodes(build):
    old, new = build.gpujob(), build.admitted(nodes=("a", "b"))
    assert event_reasons(old, new) == [("Normal", "Admitted")]
    assert "a,b" in notices(old, new.status)[0].note


def test_waiting_causes_one_event_for_each_reason(build):
    def waiting(job, reason, message):
        answer = NoPlan(reason=reason, message=message)
        return build.after(job, decide(build.see(job, answer=answer)))

    first = waiting(build.gpujob(), "TooFewFreeGpus", "3 free")
    second = waiting(first, "TooFewFreeGpus", "2 free")
    third = waiting(second, "GpuFailed", "1 failed")
    assert event_reasons(build.gpujob(), first) == [("Normal", "Waiting")]
    assert event_reasons(first, second) == []
    assert event_reasons(second, third) == [("Normal", "Waiting")]


def test_the_event_of_a_restart_names_the_cause(build):
    job = build.admitted(maxRestarts=1)
    pods = [build.pod(phase="Failed", exit_code=3, ended=9)]
    new = build.after(job, decide(build.see(job, jobs=[build.job()], pods=pods)))
    assert event_reasons(job, new) == [("Warning", "Restarting")]
    assert "exit code 3" in notices(job, new.status)[0].note


def test_the_event_of_a_failure_has_its_reason(build):
    job = build.admitted()
    pods = [build.pod(phase="Failed", exit_code=3, ended=9)]
    new = build.after(job, decide(build.see(job, jobs=[build.job()], pods=pods)))
    assert event_reasons(job, new) == [("Warning", "WorkerFailed")]


@pytest.mark.parametrize(("nodes", "events"), [("a", []), ("ab", [("Normal", "Started")])])
def test_only_the_start_of_a_gang_causes_an_event(build, nodes, events):
    job = build.admitted(nodes=tuple(nodes))
    pods = [build.pod(index, node=node) for index, node in enumerate(nodes)]
    new = build.after(job, decide(build.see(job, jobs=[build.job()], pods=pods)))
    assert (new.status.phase, event_reasons(job, new)) == ("Running", events)


def test_an_unchanged_status_causes_no_event(build):
    assert event_reasons(build.admitted(), build.admitted()) == []
