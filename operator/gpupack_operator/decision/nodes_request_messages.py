# SPDX-License-Identifier: Apache-2.0
"""Texts of the condition NodesRequested."""

from gpupack_crds import names
from gpupack_crds.gpujob_status import NodesRequest
from gpupack_crds.kinds import GpuJob
from gpupack_crds.times import format_time
from gpupack_operator.decision import gpus, times
from gpupack_operator.decision.nodes import Provisioning
from gpupack_operator.decision.reasons import JobReason


def describe_request(
    request: NodesRequest, job: GpuJob, settings: Provisioning | None
) -> tuple[JobReason, str] | None:
    """Return a reason and a sentence for users; None: nodes were never requested."""
    name = names.nodes_request(job.metadata.name, number=request.number)
    match request.state:
        case "Creating" | "Requested":
            held = gpus.phrase(job.spec, workers=job.spec.least)
            said = f"ProvisioningRequest {name} requests nodes for {held}"
            return (
                JobReason.PROVISIONING_REQUESTED,
                f"{said}; the cluster's autoscaler has not answered yet",
            )
        case "Provisioned":
            said = f"the cluster's autoscaler has provisioned the nodes of {name}"
            then = "the job starts when their agents report the GPUs and the queue admits it"
            return JobReason.PROVISIONED, f"{said}; {then}"
        case "Failed":
            return _failed(request, settings)
        case "Deferred":
            return JobReason.PROVISIONING_DEFERRED, request.message
        case "Withdrawn":
            return JobReason.PROVISIONING_WITHDRAWN, f"{name} was withdrawn: {request.message}"
        case _:
            return None


def _failed(request: NodesRequest, settings: Provisioning | None) -> tuple[JobReason, str]:
    if settings is None or request.since is None:
        return JobReason.PROVISIONING_FAILED, request.message
    if request.failures >= settings.max_failures:
        vain = f"{request.failures} consecutive requests gave the job no place"
        then = "no nodes are requested until the job is changed"
        return JobReason.PROVISIONING_STOPPED, f"{request.message}; {vain}: {then}"
    pause = settings.backoff_after(request.failures)
    retry_at = format_time(times.after(times.read(request.since), pause))
    count = f"failure {request.failures} of {settings.max_failures}"
    return (
        JobReason.PROVISIONING_FAILED,
        f"{request.message}; requested again at {retry_at} or later ({count})",
    )
