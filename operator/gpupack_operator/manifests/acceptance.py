# SPDX-License-Identifier: Apache-2.0
"""GPUJobs that test GPUs, each on one node, even if the node is cordoned or tainted."""

import hashlib
from collections.abc import Iterable
from typing import Any, Final

from gpupack_crds import names
from gpupack_crds.gpunode import GpuDevice
from gpupack_kubeclient.objects import Json
from gpupack_operator.decision.acceptance import AcceptanceTest

UNHEALTHY: Final = 3
"""Exit status of a burn-in whose GPU is not healthy."""

KEPT_SECONDS: Final = 86_400
"""Keeps a finished GPUJob for a day, so that its log can be read."""

_NAME_DIGITS: Final = 12


def job_name(node: str, test: AcceptanceTest) -> str:
    """Return the GPUJob's name.

    It contains a hash, as a node's name may be longer than a GPUJob's.
    """
    return f"{test}-{hashlib.sha256(node.encode()).hexdigest()[:_NAME_DIGITS]}"


def gpujob(
    node: str,
    test: AcceptanceTest,
    devices: Iterable[GpuDevice],
    *,
    seconds: int,
    args: Iterable[str],
) -> Json:
    """Make the GPUJob that tests these devices; it has a worker for each, or one worker with all.

    Args:
        node: the node of the devices.
        test: the test to run.
        devices: the GPUs to test.
        seconds: the deadline.
        args: arguments of the burn-in.
    """
    found = list(devices)
    real = [] if any(each.simulated for each in found) else ["--require-gpu"]
    spec: dict[str, Any] = {
        "activeDeadlineSeconds": seconds,
        "ttlSecondsAfterFinished": KEPT_SECONDS,
        "template": {"spec": _on(node)},
    }
    if test == "burn-in":
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
            "name": job_name(node, test),
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
