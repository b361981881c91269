# SPDX-License-Identifier: Apache-2.0
"""Decision whether a job that lost an attempt gets another one.

| how it ended                               | another attempt | counts against maxRestarts |
|---|---|---|
| infrastructure, suspended, preempted, moved, revised | yes   | no  |
| failed, failurePolicy says Retry           | yes             | no  |
| failed, failurePolicy says Fail            | no              |     |
| failed otherwise                           | while restarts < maxRestarts | yes |
| deadline, or the same end for certain      | no              |     |
"""

import enum

from gpupack_crds.gpujob_status import GpuJobStatus
from gpupack_operator.decision.view import AttemptView, Verdict


class Step(enum.Enum):
    """Step that follows an attempt that did not succeed."""

    GIVE_UP = enum.auto()
    RETRY = enum.auto()
    RETRY_COUNTED = enum.auto()


def next_step(verdict: Verdict, view: AttemptView, status: GpuJobStatus) -> Step:
    """Look up the verdict in the table above."""
    if verdict.permanent or verdict.outcome == "DeadlineExceeded":
        return Step.GIVE_UP
    if verdict.outcome in {"Infrastructure", "Preempted", "Moved", "Revised", "Suspended"}:
        return Step.RETRY
    action = view.action_for(verdict.exit_code)
    if action == "Retry":
        return Step.RETRY
    if action == "Fail" or status.restarts >= view.spec.max_restarts:
        return Step.GIVE_UP
    return Step.RETRY_COUNTED
