# SPDX-License-Identifier: Apache-2.0
"""GPUJob that has succeeded or failed: its Jobs are cleaned up until it is deleted itself."""

from gpupack_crds.gpujob_status import GpuJobStatus
from gpupack_operator.decision import cleanup, times
from gpupack_operator.decision.model import Decision, DeleteGpuJob, Observation


def decide(observation: Observation, status: GpuJobStatus) -> Decision:
    """Clean up, and delete the GPUJob when its time to live is over."""
    finished_at = times.read(status.finished_at) if status.finished_at else observation.now
    ttl = observation.job.spec.ttl_seconds_after_finished
    over = None if ttl is None else times.after(finished_at, ttl)
    if over is not None and over <= observation.now:
        return Decision(status=status, actions=(DeleteGpuJob(),))
    actions, look_at = cleanup.clear_jobs(observation, status)
    return Decision(status=status, actions=actions, again_at=times.earliest(over, look_at))
