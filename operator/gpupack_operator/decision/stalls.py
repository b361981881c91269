# SPDX-License-Identifier: Apache-2.0
"""A GPUJob at which the operator's passes fail says so; nothing is retried in silence."""

from gpupack_crds.gpujob_status import GpuJobStatus
from gpupack_kube import errors
from gpupack_operator.decision.conditions import Type, Writer, get
from gpupack_operator.decision.reasons import JobReason

USUAL_FAILURES = 2
"""Failures in a row that need no word: somebody else wrote at the same time, a connection broke."""


def is_worth_telling(error: Exception, *, failures: int) -> bool:
    """Whether the status should say that a pass has failed, for so many times in a row."""
    return not isinstance(error, errors.KubeError) or failures > USUAL_FAILURES


def stalled(
    status: GpuJobStatus, error: Exception, *, retry_seconds: float, write: Writer
) -> GpuJobStatus:
    """The status of a GPUJob at which a pass has failed.

    Args:
        status: what it says so far, perhaps nothing.
        error: how the pass ended.
        retry_seconds: the longest time until the next pass.
        write: writes conditions.
    """
    reason, said = _explained(error)
    message = f"{said}; tried again every {retry_seconds:.0f} s or sooner"
    return write.set(write.first(status), Type.STALLED, "True", reason, message)


def is_stalled(status: GpuJobStatus) -> bool:
    """Whether the last word is that passes fail."""
    condition = get(status, Type.STALLED)
    return condition is not None and condition.status == "True"


def recovered(status: GpuJobStatus, write: Writer) -> GpuJobStatus:
    """A pass has come to its end again."""
    return write.set(status, Type.STALLED, "False", JobReason.RECOVERED, "")


def _explained(error: Exception) -> tuple[JobReason, str]:
    """What an unexpected error says may be about others: its kind is told, its text is logged."""
    match error:
        case errors.Refused():
            return JobReason.API_ERROR, f"the API server refuses: {error.said}"
        case errors.KubeError():
            return JobReason.API_ERROR, "the API server does not answer"
    kind = type(error).__name__
    said = f"the operator fails at this job with {kind}, a bug; its log has the details"
    return JobReason.INTERNAL_ERROR, said
