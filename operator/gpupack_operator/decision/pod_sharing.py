# SPDX-License-Identifier: Apache-2.0
"""Decision whether workers share pods without `podPerWorker`: not after a refused shared pod.

An admission policy may accept Jobs whose pods have one worker and refuse those of a larger pod.
Then the next attempts have a pod for each worker. The entries of the attempts record which of them
shared pods, and how they ended. Refusals of anything else (a Service, a Secret, what a quota
counts) say nothing about shared pods. Nor do refusals that the Job controller gets: it gives no
reason, so the dry run of the next attempt decides.
"""

from gpupack_crds.gpujob import GpuJobSpec
from gpupack_crds.gpujob_status import GpuJobStatus
from gpupack_operator.decision.reasons import JobReason


def sharing_refusal(spec: GpuJobSpec, status: GpuJobStatus) -> str:
    """Return why each worker of the next attempt needs its own pod; empty: they may share.

    The last attempt that shared pods decides. It says nothing about a later revision.
    """
    if spec.pod_per_worker is not None or spec.revision > status.revision:
        return ""
    last = next((each for each in reversed(status.attempts) if each.shares_pods), None)
    if last is None or last.reason != JobReason.SHARED_POD_REJECTED:
        return ""
    return f"the API server refused a Job whose workers share a pod in attempt {last.number}"
