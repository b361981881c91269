# SPDX-License-Identifier: Apache-2.0
"""Labels and annotations by which other schedulers find a pod's queue, gang and GPUs."""

from typing import Final

from gpupack_cli.convert.gpus import KAI_ANNOTATIONS
from gpupack_cli.convert.pod import LAST_APPLIED
from gpupack_cli.convert.report import Report
from gpupack_crds import names

NAMESPACE_QUOTA: Final = "the job counts against the GPUQuota of its namespace"
CLASS: Final = (
    "set spec.priorityClassName to a PriorityClass with preemptionPolicy: Never and this value"
)
TOPOLOGY: Final = "use spec.spread: maxNodes, oneWorkerPerNode or oneClique"
NO_DEVICE: Final = "gpupack chooses the GPUs; name models in gpuModels, or label nodes"

KUEUE_QUEUE: Final = "kueue.x-k8s.io/queue-name"

QUEUES: Final = (
    KUEUE_QUEUE,
    "kai.scheduler/queue",
    "runai/queue",
    "scheduling.volcano.sh/queue-name",
    "volcano.sh/queue-name",
)
DROPPED: Final = {
    "kueue.x-k8s.io/priority-class": CLASS,
    "kueue.x-k8s.io/max-exec-time-seconds": "set spec.activeDeadlineSeconds",
    "priorityClassName": CLASS,
    "kueue.x-k8s.io/podset-required-topology": TOPOLOGY,
    "kueue.x-k8s.io/podset-preferred-topology": TOPOLOGY,
    "kueue.x-k8s.io/podset-slice-required-topology": TOPOLOGY,
    "kueue.x-k8s.io/podset-slice-size": TOPOLOGY,
    "kai.scheduler/node-pool": "use template.spec.nodeSelector",
    "nvidia.com/nouse-gputype": "list the permitted models in gpuModels",
    "nvidia.com/use-gpuuuid": NO_DEVICE,
    "nvidia.com/nouse-gpuuuid": f"{NO_DEVICE}; `gpupack gpu cordon` takes a GPU out of service",
    "nvidia.com/numa-bind": "interconnect: nvlink restricts a worker's GPUs to one NVLink clique",
    "nvidia.com/vgpu-mode": "request MIG slices with spec.mig",
    "volcano.sh/vgpu-use-gpuuuid": NO_DEVICE,
    "volcano.sh/vgpu-nouse-gpuuuid": NO_DEVICE,
    "volcano.sh/vgpu-podgroup-policy": "shares go to the fullest GPU on which they fit",
    "hami.io/node-scheduler-policy": "spec.policy selects a placement policy (best-fit, worst-fit)",
    "hami.io/gpu-scheduler-policy": "shares go to the fullest GPU on which they fit",
}
"""Keys whose effect is lost, with what to do instead."""

OWNED: Final = ("hami.io/", "kueue.x-k8s.io/", "kai.scheduler/", "volcano.sh/", "runai/")
"""Prefixes of keys that only their own schedulers read."""

HANDLED: Final = frozenset({"nvidia.com/use-gputype", LAST_APPLIED, *KAI_ANNOTATIONS})
"""Keys that the conversion reads itself, or that describe another object."""


def kept(found: dict[str, str], report: Report, *, path: str) -> dict[str, str]:
    """Return the labels or annotations that keep their meaning; report the others."""
    result = dict[str, str]()
    for key, value in found.items():
        where = f"{path}.{key}"
        if key in QUEUES:
            report.note(where, value, NAMESPACE_QUOTA)
        elif key in DROPPED:
            report.dropped(where, value, DROPPED[key])
        elif key.startswith(OWNED):
            report.note(where, value, "only the other scheduler reads it")
        elif key.startswith(f"{names.GROUP}/"):
            report.dropped(where, value, f"keys under {names.GROUP}/ are gpupack's own")
        elif key not in HANDLED:
            result[key] = value
    return result
