# SPDX-License-Identifier: Apache-2.0
"""Which workers of a GPUJob run in which pod: workers of one node may share one.

The ledger knows a pod by its first worker, and the GPUs that it holds. A whole GPU has one worker,
which the placement of the job names; so a pod's workers are those of its GPUs.
"""

from collections.abc import Mapping

from gpupack_api.shown_job import ShownJob
from gpupack_crds.devices import DeviceShare
from gpupack_crds.placement import by_worker
from gpupack_scheduling.ledger import claims
from gpupack_scheduling.ledger.ledger import Ledger
from gpupack_scheduling.ledger.workers import AttemptKey, WorkerKey


class PodWorkers:
    """The workers of GPUs that pods hold.

    Args:
        jobs: by namespace and name.
    """

    def __init__(self, jobs: Mapping[tuple[str, str], ShownJob]) -> None:
        self._jobs = jobs
        self._by_gpu: dict[AttemptKey, dict[str, int]] = {}

    def of(self, pod: WorkerKey, share: DeviceShare) -> int:
        """Find the worker that has a GPU, or a share of one, in the pod of this first worker."""
        if not share.whole:
            return pod.index
        attempt = pod.attempt
        if attempt not in self._by_gpu:
            self._by_gpu[attempt] = _by_gpu(
                self._jobs.get((attempt.namespace, attempt.job)), attempt
            )
        return self._by_gpu[attempt].get(share.uuid, pod.index)


def pod_names(ledger: Ledger, job: ShownJob) -> dict[int, str]:
    """Find the pods of a job's current attempt; by worker, their names."""
    namespace, name = job.key
    attempt = AttemptKey(
        namespace=namespace, job=name, job_uid=job.metadata.uid, number=job.status.attempt
    )
    workers, found = PodWorkers({job.key: job}), dict[int, str]()
    for claim in ledger.claims.pods_of_attempt(attempt):
        if claim.worker is not None:
            held = claims.shares(claim.placement)
            mine = {claim.worker.index, *(workers.of(claim.worker, share) for share in held)}
            found |= dict.fromkeys(mine, claim.name)
    return found


def _by_gpu(job: ShownJob | None, attempt: AttemptKey) -> dict[str, int]:
    """Of an attempt that is not the job's current one nothing is known."""
    if job is None or (job.metadata.uid, job.status.attempt) != (attempt.job_uid, attempt.number):
        return {}
    placed = by_worker(job.status.placement)
    return {share.uuid: each.worker for each in placed for share in each.devices}
