# SPDX-License-Identifier: Apache-2.0
"""What can go wrong in the operator itself.

OperatorError
├── PlanUnanswered   the plan API gave no plan and no refusal
├── PlanBusy         another job is being planned
├── PlanInvalid      the plan API cannot read what the job asks for
├── TemplateInvalid  a pod template cannot be merged over ours
├── WatchStale       a watch does not keep up with the API server
└── HeartbeatStale   the probe: the operator does not report that it is well

A refused plan is an answer, not an error. Errors of the API server are gpupack_kube's.
"""


class OperatorError(Exception):
    """Root: something in the operator went wrong."""


class PlanUnanswered(OperatorError):
    """The plan API could not be asked, or said neither yes nor no.

    Attributes:
        denied: it refused the caller; asking again will not help before somebody mends it.
    """

    def __init__(self, message: str, *, denied: bool = False) -> None:
        super().__init__(message)
        self.denied = denied


class PlanBusy(OperatorError):
    """Another job is being planned: nobody waits for it, ask again."""


class PlanInvalid(OperatorError):
    """The plan API cannot read or serve what the job asks for; asking again changes nothing."""


class TemplateInvalid(OperatorError):
    """A GPUJob's pod template cannot be merged over ours; the message names the field."""


class WatchStale(OperatorError):
    """A watch does not keep up with the API server: start anew."""


class HeartbeatStale(OperatorError):
    """The operator has not reported for a while that it is well."""
