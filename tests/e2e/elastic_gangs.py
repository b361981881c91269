# SPDX-License-Identifier: Apache-2.0
"""An elastic gang that fills what another job leaves of the cluster's 16 GPUs."""

from typing import Any

from harness import Kube, placed, wait_for
from manifests import Judged, Manifest

GANG, OTHER = "gang", "other"
LEAST, MOST = 2, 4
GPUS = 4
"""Of each worker: all of the dev cluster's GPUs are 4 workers'."""
SECONDS = 600
"""Longer than any test: whoever ends before ends by somebody's hand."""
RESIZE_SECONDS = 90
"""The chart's growAfterSeconds here, a restart of a part, and a busy machine."""


def gang(judged: Judged, **spec: Any) -> Manifest:
    """2 to 4 workers of 4 GPUs."""
    size = {"workers": MOST, "minWorkers": LEAST, "gpus": GPUS}
    return judged.job(GANG, seconds=SECONDS, **size, **spec)


def other(judged: Judged) -> Manifest:
    """Half of the cluster, for as long as it is there."""
    return judged.job(OTHER, workers=2, gpus=GPUS, seconds=SECONDS)


def width(kube: Kube) -> int:
    """How many workers of the gang have places."""
    return kube.gpujob(GANG).get("status", {}).get("width", {}).get("workers", 0)


def wait_width(kube: Kube, workers: int, *, seconds: float = RESIZE_SECONDS) -> dict[str, Any]:
    """Wait until so many workers have places, and a running pod each; returns the GPUJob.

    Nothing must be there twice, and nothing that has no place.
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
    """Indices of the gang's pods that have not ended."""
    over = {"Succeeded", "Failed"}
    alive = [pod for pod in kube.pods(GANG) if pod["status"].get("phase") not in over]
    return [index(pod) for pod in alive]


def running(kube: Kube) -> list[int]:
    """Indices of those that run and are not being deleted."""
    alive = [pod for pod in kube.pods(GANG) if pod["status"].get("phase") == "Running"]
    return sorted(index(pod) for pod in alive if "deletionTimestamp" not in pod["metadata"])


def index(pod: dict[str, Any]) -> int:
    """The worker's."""
    return int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"])


def jobs(kube: Kube) -> list[str]:
    """Names of the gang's Jobs."""
    names = kube.insist("get", "jobs.batch", "--selector=gpupack.dev/job=gang", "-o", "name")
    return names.split()


def require_one_attempt(kube: Kube) -> None:
    """Whatever came and went, the gang's first attempt runs on."""
    status = kube.gpujob(GANG)["status"]
    found = [(each["number"], each.get("outcome")) for each in status["attempts"]]
    assert (status["phase"], found) == ("Running", [(1, None)]), status
    assert not any(status.get(count) for count in ("preemptions", "restarts", "moves")), status
