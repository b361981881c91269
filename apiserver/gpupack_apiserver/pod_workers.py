# SPDX-License-Identifier: Apache-2.0
"""The pod of each GPUJob's worker: workers of one node may share one.

The ledger identifies a pod by its first worker; the placement of the job has its other workers.
"""

from collections.abc import Mapping

from gpupack_apiserver.shown_job import ShownJob
from gpupack_crds.devices import DeviceShare
from gpupack_crds.worker_pods import WorkerPod, pods_of
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.ledger.workers import AttemptKey, WorkerKey


class PodWorkers:
    """The workers of pods, from the placements of their jobs.

    Args:
        jobs: GPUJobs by namespace and name.
    """

    def __init__(self, jobs: Mapping[tuple[str, str], ShownJob]) -> None:
        self._jobs = jobs
        self._by_first: dict[AttemptKey, dict[int, WorkerPod]] = {}

    def worker(self, pod: WorkerKey, share: DeviceShare) -> int:
        """Return the worker that has a GPU, or a share of one, in the pod of this first worker."""
        return self.pod(pod).worker_with(share.uuid)

    def pod(self, first: WorkerKey) -> WorkerPod:
        """Return the pod of this first worker; without a placement it has no other worker."""
        attempt = first.attempt
        if attempt not in self._by_first:
            job = self._jobs.get((attempt.namespace, attempt.job))
            self._by_first[attempt] = {each.index: each for each in _pods(job, attempt)}
        return self._by_first[attempt].get(first.index, WorkerPod("", (first.index,)))


def pod_names(ledger: Ledger, job: ShownJob) -> dict[int, str]:
    """Return the pod names of a job's current attempt, by worker."""
    namespace, name = job.key
    attempt = AttemptKey(
        namespace=namespace, job=name, job_uid=job.metadata.uid, number=job.status.attempt
    )
    workers, found = PodWorkers({job.key: job}), dict[int, str]()
    for claim in ledger.claims.pods_of_attempt(attempt):
        if claim.worker is not None:
            found |= dict.fromkeys(workers.pod(claim.worker).workers, claim.name)
    return found


def _pods(job: ShownJob | None, attempt: AttemptKey) -> tuple[WorkerPod, ...]:
    """Return the pods of an attempt; none where it is not the job's current one."""
    if job is None or (job.metadata.uid, job.status.attempt) != (attempt.job_uid, attempt.number):
        return ()
    return pods_of(job.status, least=job.spec.least)
