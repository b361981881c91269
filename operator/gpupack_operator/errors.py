# SPDX-License-Identifier: Apache-2.0
"""Errors of the operator itself.

OperatorError
├── PlanUnanswered   the plan API gave no plan and no refusal
├── PlanBusy         another job is being planned
├── PlanInvalid      the plan API cannot read the job's request
├── TemplateInvalid  a pod template cannot be merged over gpupack's
├── WatchStale       a watch does not keep up with the API server
└── HeartbeatStale   the probe: the operator does not report that it is healthy

A refused plan is an answer, not an error. gpupack_kubeclient defines the API server's errors.
"""


class OperatorError(Exception):
    """Base class of the operator's errors."""


class PlanUnanswered(OperatorError):
    """Failure to reach the plan API, or an answer that is neither a plan nor a refusal.

    Attributes:
        denied: whether it refused the caller; another request is useless before this is repaired.
    """

    def __init__(self, message: str, *, denied: bool = False) -> None:
        super().__init__(message)
        self.denied = denied


class PlanBusy(OperatorError):
    """Another job is being planned: request again instead of waiting."""


class PlanInvalid(OperatorError):
    """The plan API cannot read or serve the job's request; another request changes nothing."""


class TemplateInvalid(OperatorError):
    """A GPUJob's pod template cannot be merged over gpupack's; the message names the field."""


class WatchStale(OperatorError):
    """A watch does not keep up with the API server: the operator must restart."""


class HeartbeatStale(OperatorError):
    """The operator has not reported for a while that it is healthy."""
