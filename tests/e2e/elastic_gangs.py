# SPDX-License-Identifier: Apache-2.0
"""An elastic gang that fills the GPUs that another job leaves of the cluster's 16."""

from typing import Any

from harness import Kube, placed, wait_for
from manifests import Judged, Manifest

GANG, OTHER = "gang", "other"
LEAST, MOST = 2, 4
GPUS = 4
"""GPUs of each worker: 4 workers use all of the dev cluster's GPUs."""
SECONDS = 600
"""Longer than any test: a job that ends earlier was ended by something else."""
RESIZE_SECONDS = 90
"""The chart's growAfterSeconds here, plus a restart of a component on a busy machine."""


def gang(judged: Judged, **spec: Any) -> Manifest:
    """A gang of 2 to 4 workers of 4 GPUs."""
    size = {"workers": MOST, "minWorkers": LEAST, "gpus": GPUS}
    return judged.job(GANG, seconds=SECONDS, **size, **spec)


def other(judged: Judged) -> Manifest:
    """A job that holds half of the cluster while it exists."""
    return judged.job(OTHER, workers=2, gpus=GPUS, seconds=SECONDS)


def width(kube: Kube) -> int:
    """Return how many workers of the gang have places."""
    return kube.gpujob(GANG).get("status", {}).get("width", {}).get("workers", 0)


def wait_width(kube: Kube, workers: int, *, seconds: float = RESIZE_SECONDS) -> dict[str, Any]:
    """Wait until so many workers have places, and a running pod each; return the GPUJob.

    No worker may have two pods, and no pod may exist without a place.
    """

    def look() -> dict[str, Any] | None:
        job = kube.gpujob(GANG)
        if job.get("status", {}).get("width", {}).get("workers") != workers:
            return None
        indices = sorted(worker.worker for worker in placed(job))
        is_whole = indices == running(kube) == sorted(kept(kube))
        return job if is_whole and len(jobs(kube)) == 1 + workers - LEAST else None

    return wait_for(look, seconds=seconds, what=f"{workers} workers, each with a pod that runs")


def kept(kube: Kube) -> list[int]:
    """Return the indices of the gang's pods that have not ended."""
    over = {"Succeeded", "Failed"}
    alive = [pod for pod in kube.pods(GANG) if pod["status"].get("phase") not in over]
    return [index(pod) for pod in alive]


def running(kube: Kube) -> list[int]:
    """Return the indices of the pods that run and are not being deleted."""
    alive = [pod for pod in kube.pods(GANG) if pod["status"].get("phase") == "Running"]
    return sorted(index(pod) for pod in alive if "deletionTimestamp" not in pod["metadata"])


def index(pod: dict[str, Any]) -> int:
    """Return the worker's index."""
    return int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"])


def jobs(kube: Kube) -> list[str]:
    """Return the names of the gang's Jobs."""
    names = kube.insist("get", "jobs.batch", "--selector=gpupack.dev/job=gang", "-o", "name")
    return names.split()


def require_one_attempt(kube: Kube) -> None:
    """Check that the gang's first attempt still runs, whichever workers came and went."""
    status = kube.gpujob(GANG)["status"]
    found = [(each["number"], each.get("outcome")) for each in status["attempts"]]
    assert (status["phase"], found) == ("Running", [(1, None)]), status
    assert not any(status.get(count) for count in ("preemptions", "restarts", "moves")), status
