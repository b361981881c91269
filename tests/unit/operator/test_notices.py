# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_operator.decision.decide import decide
from gpupack_operator.decision.model import NotPlanned
from gpupack_operator.decision.notices import notices


def told(old, new):
    return [(notice.type, notice.reason) for notice in notices(old, new.status)]


def test_admission_is_told_with_its_nodes(build):
    old, new = build.gpujob(), build.admitted(nodes=("a", "b"))
    assert told(old, new) == [("Normal", "Admitted")]
    assert "a,b" in notices(old, new.status)[0].note


def test_waiting_is_told_once_for_each_reason(build):
    def waiting(job, reason, message):
        answer = NotPlanned(reason=reason, message=message)
        return build.after(job, decide(build.see(job, answer=answer)))

    first = waiting(build.gpujob(), "TooFewFreeGpus", "3 free")
    second = waiting(first, "TooFewFreeGpus", "2 free")
    third = waiting(second, "GpuFailed", "1 failed")
    assert told(build.gpujob(), first) == [("Normal", "Waiting")]
    assert told(first, second) == []
    assert told(second, third) == [("Normal", "Waiting")]


def test_a_restart_is_told_with_its_cause(build):
    job = build.admitted(maxRestarts=1)
    pods = [build.pod(phase="Failed", exit_code=3, ended=9)]
    new = build.after(job, decide(build.see(job, jobs=[build.job()], pods=pods)))
    assert told(job, new) == [("Warning", "Restarting")]
    assert "exit code 3" in notices(job, new.status)[0].note


def test_a_failure_is_told_by_its_reason(build):
    job = build.admitted()
    pods = [build.pod(phase="Failed", exit_code=3, ended=9)]
    new = build.after(job, decide(build.see(job, jobs=[build.job()], pods=pods)))
    assert told(job, new) == [("Warning", "WorkerFailed")]


@pytest.mark.parametrize(("nodes", "events"), [("a", []), ("ab", [("Normal", "Started")])])
def test_the_start_of_a_gang_is_told_and_that_of_one_worker_left_to_its_kubelet(
    build, nodes, events
):
    job = build.admitted(nodes=tuple(nodes))
    pods = [build.pod(index, node=node) for index, node in enumerate(nodes)]
    new = build.after(job, decide(build.see(job, jobs=[build.job()], pods=pods)))
    assert (new.status.phase, told(job, new)) == ("Running", events)


def test_what_did_not_change_is_not_told(build):
    assert told(build.admitted(), build.admitted()) == []
