# SPDX-License-Identifier: Apache-2.0
"""The GPUJobs by which GPUs are tried: on one node, cordoned or tainted as it may be."""

import hashlib
from collections.abc import Iterable
from typing import Any, Final

from gpupack_crds import names
from gpupack_crds.gpunode import GpuDevice
from gpupack_kube.objects import Json
from gpupack_operator.decision.acceptance import Trial

UNHEALTHY: Final = 3
"""Exit status of a burn-in whose GPU is not healthy."""

KEPT_SECONDS: Final = 86_400
"""For who wants to read its log."""

_NAME_DIGITS: Final = 12


def job_name(node: str, trial: Trial) -> str:
    """A node's name may be longer than a GPUJob's."""
    return f"{trial}-{hashlib.sha256(node.encode()).hexdigest()[:_NAME_DIGITS]}"


def gpujob(
    node: str,
    trial: Trial,
    devices: Iterable[GpuDevice],
    *,
    seconds: int,
    args: Iterable[str],
) -> Json:
    """A GPUJob for those devices: a worker for each, or one worker that has them all.

    Args:
        node: whose they are.
        trial: what is run.
        devices: on which.
        seconds: within which it must have ended.
        args: of the burn-in.
    """
    found = list(devices)
    real = [] if any(each.simulated for each in found) else ["--require-gpu"]
    spec: dict[str, Any] = {
        "activeDeadlineSeconds": seconds,
        "ttlSecondsAfterFinished": KEPT_SECONDS,
        "template": {"spec": _on(node)},
    }
    if trial == "burn-in":
        spec |= {
            "workers": len(found),
            "gpus": 1,
            "podPerWorker": True,
            "workload": {"name": "burn-in", "args": [*args, *real]},
            "failurePolicy": [{"exitCodes": [UNHEALTHY], "action": "Ignore"}],
        }
    else:
        only = ["--operation=all-reduce"]
        spec |= {"gpus": len(found), "workload": {"name": "collectives", "args": [*only, *real]}}
    return {
        "apiVersion": names.API_VERSION,
        "kind": "GPUJob",
        "metadata": {
            "name": job_name(node, trial),
            "namespace": names.ACCEPTANCE_NAMESPACE,
            "annotations": {names.ACCEPTANCE_ANNOTATION: node},
        },
        "spec": spec,
    }


def _on(node: str) -> Json:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms},
        },
        "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}],
    }
