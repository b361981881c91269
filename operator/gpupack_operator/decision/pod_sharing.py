# SPDX-License-Identifier: Apache-2.0
"""Whether workers share pods where `podPerWorker` is absent: not after a shared pod was refused.

A LimitRange or an admission policy may take pods of one worker and refuse a larger one. Then the
next attempts have a pod for each worker. The entries of the attempts say so: which of them shared
pods, and how they ended.
"""

from typing import Final

from gpupack_crds.gpujob import GpuJobSpec
from gpupack_crds.gpujob_status import GpuJobStatus
from gpupack_operator.decision.reasons import JobReason

REFUSED: Final = frozenset({JobReason.CREATION_FORBIDDEN, JobReason.INVALID_TEMPLATE})
"""Ends of attempts whose pods the API server did not take."""


def refusal(spec: GpuJobSpec, status: GpuJobStatus) -> str:
    """Say why each worker of the next attempt is to have a pod; empty: they may share.

    The last attempt that shared pods decides. What it did says nothing of a later revision.
    """
    if spec.pod_per_worker is not None or spec.revision > status.revision:
        return ""
    last = next((each for each in reversed(status.attempts) if each.shares_pods), None)
    if last is None or last.reason not in REFUSED:
        return ""
    return f"the API server refused pods of several workers in attempt {last.number}"
