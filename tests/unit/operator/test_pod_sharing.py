# SPDX-License-Identifier: Apache-2.0
"""Whether workers share pods where the spec leaves it open."""

import msgspec
import pytest

from gpupack_crds.gpujob_status import Attempt, GpuJobStatus
from gpupack_operator.decision.conditions import Type, get
from gpupack_operator.decision.decide import decide
from gpupack_operator.decision.model import CreationFailure, Plan, RequestPlan
from gpupack_operator.decision.pod_sharing import sharing_refusal
from gpupack_operator.decision.reasons import JobReason

BEGUN = "2026-11-21T12:00:00Z"
REFUSED, FORBIDDEN, LOST = "SharedPodRejected", "CreationForbidden", "PodLost"
TOGETHER, APART = True, False


def status_of(*ends, revision=0):
    entries = [
        Attempt(number=number, started_at=BEGUN, reason=reason, shares_pods=shares)
        for number, (reason, shares) in enumerate(ends, start=1)
    ]
    return GpuJobStatus(attempts=tuple(entries), attempt=len(entries), revision=revision)


@pytest.mark.parametrize(
    ("ends", "which"),
    [
        ([], None),
        ([(LOST, TOGETHER)], None),
        ([(REFUSED, TOGETHER)], 1),
        ([(FORBIDDEN, TOGETHER)], None),
        ([(FORBIDDEN, APART)], None),
        ([(REFUSED, TOGETHER), (LOST, APART), (FORBIDDEN, APART)], 1),
        ([(REFUSED, TOGETHER), (LOST, TOGETHER)], None),
    ],
)
def test_after_a_shared_pod_was_refused_each_worker_has_a_pod(build, ends, which):
    why = sharing_refusal(build.gpujob(workers=2).spec, status_of(*ends))
    assert why.endswith(f"in attempt {which}") if which else why == ""


@pytest.mark.parametrize("spec", [{"podPerWorker": False}, {"podPerWorker": True}, {"revision": 2}])
def test_an_explicit_setting_and_a_later_revision_override_the_refusal(build, spec):
    job = build.gpujob(workers=2, **spec)
    assert sharing_refusal(job.spec, status_of((REFUSED, TOGETHER), revision=1)) == ""


def test_the_next_plan_request_has_the_refusal_of_earlier_attempts(build):
    shared = Plan(build.placement("a", "a"), seconds=9, shares_pods=True)
    fresh = build.gpujob(workers=2)
    begun = build.after(fresh, decide(build.see(fresh, answer=shared, now=0)))
    assert begun.status.attempts[-1].shares_pods
    no = CreationFailure(JobReason.SHARED_POD_REJECTED, "too large", permanent=False)
    ended = build.after(begun, decide(build.see(begun, answer=no, now=1)))
    (ask,) = decide(build.see(ended, now=60)).actions
    why = "the API server refused a Job whose workers share a pod in attempt 1"
    assert ask == RequestPlan(2, separate=why)
    apart = Plan(build.placement("a", "a"), seconds=9, separate=ask.separate)
    second = decide(build.see(ended, now=61, answer=apart)).status
    assert not second.attempts[-1].shares_pods
    assert ask.separate in get(second, Type.ADMITTED).message


def test_pod_sharing_is_written_with_the_placement(build):
    gang = build.admitted(nodes=("a", "a"), podPerWorker=False)
    entry = msgspec.to_builtins(gang.status)["attempts"][-1]
    assert entry["sharesPods"] is True
    apart = build.admitted(nodes=("a", "a"), podPerWorker=True)
    assert "sharesPods" not in msgspec.to_builtins(apart.status)["attempts"][-1]
