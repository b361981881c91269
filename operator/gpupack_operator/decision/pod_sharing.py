# SPDX-License-Identifier: Apache-2.0
"""Whether workers share pods where `podPerWorker` is absent: not after a shared pod was refused.

An admission policy may take Jobs whose pods have one worker and refuse those of a larger pod. Then
the next attempts have a pod for each worker. The entries of the attempts say so: which of them
shared pods, and how they ended. Refusals of anything else (a Service, a Secret, what a quota
counts) say nothing of shared pods. Nor do refusals that the Job controller meets: it gives no
reason, so the dry run of the next attempt decides.
"""

from gpupack_crds.gpujob import GpuJobSpec
from gpupack_crds.gpujob_status import GpuJobStatus
from gpupack_operator.decision.reasons import JobReason


def refusal(spec: GpuJobSpec, status: GpuJobStatus) -> str:
    """Say why each worker of the next attempt is to have a pod; empty: they may share.

    The last attempt that shared pods decides. What it did says nothing of a later revision.
    """
    if spec.pod_per_worker is not None or spec.revision > status.revision:
        return ""
    last = next((each for each in reversed(status.attempts) if each.shares_pods), None)
    if last is None or last.reason != JobReason.SHARED_POD_REFUSED:
        return ""
    return f"the API server refused a Job whose workers share a pod in attempt {last.number}"
