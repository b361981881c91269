# SPDX-License-Identifier: Apache-2.0
"""Condition of a GPUJob whose passes fail; no error is retried without a message."""

from gpupack_crds.gpujob_status import GpuJobStatus
from gpupack_kubeclient import errors
from gpupack_operator.decision.conditions import Type, Writer, get
from gpupack_operator.decision.reasons import JobReason

USUAL_FAILURES = 2
"""Consecutive failures without a message: another client wrote concurrently, a connection broke."""


def is_worth_reporting(error: Exception, *, failures: int) -> bool:
    """Tell whether the status should report a failed pass, after so many consecutive failures."""
    return not isinstance(error, errors.KubeError) or failures > USUAL_FAILURES


def with_stalled(
    status: GpuJobStatus, error: Exception, *, retry_seconds: float, write: Writer
) -> GpuJobStatus:
    """Return the status of a GPUJob whose pass has failed.

    Args:
        status: the current status, perhaps empty.
        error: the error that ended the pass.
        retry_seconds: the longest time until the next pass.
        write: writes conditions.
    """
    reason, said = _explained(error)
    message = f"{said}; tried again every {retry_seconds:.0f} s or sooner"
    return write.set(write.first(status), Type.STALLED, "True", reason, message)


def is_stalled(status: GpuJobStatus) -> bool:
    """Tell whether the status reports that passes fail."""
    condition = get(status, Type.STALLED)
    return condition is not None and condition.status == "True"


def without_stalled(status: GpuJobStatus, write: Writer) -> GpuJobStatus:
    """Return the status after a pass has succeeded again."""
    return write.set(status, Type.STALLED, "False", JobReason.RECOVERED, "")


def _explained(error: Exception) -> tuple[JobReason, str]:
    """Return reason and text.

    An unexpected error may name other tenants, so its text is only logged.
    """
    match error:
        case errors.Refused():
            return JobReason.API_ERROR, f"the API server refuses: {error.said}"
        case errors.KubeError():
            return JobReason.API_ERROR, "the API server does not answer"
    kind = type(error).__name__
    said = f"internal error ({kind}) while this job was reconciled; see the operator's log"
    return JobReason.INTERNAL_ERROR, said
