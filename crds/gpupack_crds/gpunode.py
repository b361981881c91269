# SPDX-License-Identifier: Apache-2.0
"""GPUNode: the GPUs of one node as its agent sees them, and the node's maintenance."""

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, ClassVar, Final, Literal

from gpupack_crds.condition import BY_TYPE, Condition
from gpupack_crds.devices import MAX_MEMORY_MIB, MAX_UUID, DeviceShare
from gpupack_crds.mig import MigGpu, MigLayout
from gpupack_crds.names import GPU
from gpupack_crds.wire import Rule, Timestamp, Wire, described

MAX_GPUS = 128
"""Maximum GPUs of one node."""

MAX_CAUSES = 16
"""Maximum health rules that report one GPU."""

MAX_XIDS = 32
"""Maximum XIDs of one GPU; the catalogue has fewer that change a grade."""

MAX_MAINTENANCE = 16
"""Maximum maintenance entries of one node."""

MAX_RELAPSES = 16
"""Maximum relapses that are counted for a GPU on probation."""

MAX_RESOURCES = 32
"""Maximum resource names of one node's GPUs."""

MAX_COUNTS = 512
"""Maximum characters of the column of resource counts."""

MAX_NVLINKS = 36
"""Maximum NVLinks of one GPU; NVML has no more."""

MAX_NUMBER = 1023
"""Largest number of a GPU, NUMA node or NVLink clique on one node; Linux has no more NUMA nodes."""

Resource = Annotated[
    str, described("A resource by which the kubelet hands out GPUs.", min_length=1, max_length=253)
]
Mode = Literal["owned", "observed"]
Health = Literal["Healthy", "Degraded", "Cordoned", "Failed"]

TAKES_WORK: Final[frozenset[Health]] = frozenset({"Healthy", "Degraded"})
"""Health states in which a GPU gets new work, unless another decision excludes it."""

INVENTORY_REJECTED: Final = "InventoryRejected"
"""Type of the condition of a GPUNode whose node gets no work."""

INVENTORY_UNAVAILABLE: Final = "InventoryUnavailable"
"""Type of the condition of a GPUNode whose GPUs cannot be read."""

POD_CGROUPS_MISSING: Final = "PodCgroupsMissing"
"""Type of the condition of a GPUNode whose agent cannot see whether pods are alive."""

Limits = Literal["None", "MPS", "Simulated"]
Drain = Literal["Never", "Movable", "All"]
Outcome = Literal["Passed", "Failed", "Unknown"]
Phase = Literal["Quarantined", "Acceptance", "Probation", "Slow"]


class GpuDevice(Wire, frozen=True):
    """One GPU."""

    uuid: Annotated[str, described("The GPU's UUID.", min_length=1, max_length=MAX_UUID)]
    index: Annotated[
        int,
        described("Index of the GPU on its node, as in the driver.", ge=0, le=MAX_NUMBER),
    ]
    model: Annotated[str, described("Product name, as the driver gives it.", max_length=128)]
    memory_mib: Annotated[
        int,
        described(
            "Memory of the GPU, in MiB.", ge=1, le=MAX_MEMORY_MIB, schema={"format": "int64"}
        ),
    ]
    health: Annotated[
        Health,
        described(
            "Healthy; Degraded: it works, and is used last; Cordoned: running work continues, and "
            "it gets no new work; Failed: it does not work, and GPUJobs on it restart elsewhere."
        ),
    ] = "Healthy"
    cause: Annotated[str, described("Why the GPU is not Healthy.", max_length=256)] = ""
    causes: Annotated[
        tuple[Annotated[str, described("Name of a rule.", min_length=1, max_length=64)], ...],
        described("Health rules that apply, the worst first.", max_length=MAX_CAUSES),
    ] = ()
    since: (
        Annotated[Timestamp, described("Time since which it has this health, if not Healthy.")]
        | None
    ) = None
    recovering_since: (
        Annotated[
            Timestamp,
            described(
                "Time since which its readings are better than its health. The health improves "
                "after agent.hysteresisSeconds."
            ),
        ]
        | None
    ) = None
    xids: Annotated[
        tuple[Annotated[int, described("An XID of NVIDIA's catalogue.", ge=0)], ...],
        described(
            "XID errors that the driver reported. They count until the node boots or this GPUNode "
            "is deleted.",
            max_length=MAX_XIDS,
        ),
    ] = ()
    numa_node: (
        Annotated[
            int,
            described("NUMA node of the GPU. Absent: unknown.", ge=0, le=MAX_NUMBER),
        ]
        | None
    ) = None
    nvlink_clique: (
        Annotated[
            int,
            described(
                "GPUs with the same number are connected by NVLink. Absent: the GPU has no NVLink "
                "peers.",
                ge=0,
                le=MAX_NUMBER,
            ),
        ]
        | None
    ) = None
    p2p_clique: (
        Annotated[
            int,
            described(
                "GPUs with the same number can read each other's memory directly, over NVLink or "
                "PCIe. Absent: the GPU has no such peers.",
                ge=0,
                le=MAX_NUMBER,
            ),
        ]
        | None
    ) = None
    nvlinks: Annotated[int, described("Number of NVLinks.", ge=0, le=MAX_NVLINKS)] = 0
    nvlinks_down: Annotated[
        tuple[Annotated[int, described("Number of a link.", ge=0, le=MAX_NVLINKS)], ...],
        described("Numbers of NVLinks that are down.", max_length=MAX_NVLINKS),
    ] = ()
    cpus: Annotated[
        str,
        described(
            "Host CPUs close to the GPU, in Linux's list format: 0-47,96-143.", max_length=256
        ),
    ] = ""
    architecture: Annotated[
        str,
        described(
            "NVIDIA's name of the architecture, such as Hopper. Empty: unknown.", max_length=32
        ),
    ] = ""
    serial: Annotated[
        str, described("Serial number of the board. Empty: unknown.", max_length=64)
    ] = ""
    pci_bus_id: Annotated[
        str,
        described("PCI address: domain:bus:device.function.", max_length=32),
    ] = ""
    compute_mode: Annotated[
        str,
        described(
            "Compute mode of the driver: default, exclusive_process, exclusive_thread or "
            "prohibited. Only in default mode can several pods share the GPU.",
            max_length=32,
        ),
    ] = ""
    resource: Annotated[
        str,
        described("Extended resource of the GPU.", min_length=1, max_length=253),
    ] = GPU
    limits: Annotated[
        Limits,
        described(
            "How limited shares are enforced. MPS: by CUDA's Multi-Process Service and the agent. "
            "Simulated: not at all, and results say so. None: the GPU has no limited shares."
        ),
    ] = "None"
    idle_since: (
        Annotated[
            Timestamp,
            described(
                "Time since which pods hold the GPU and nothing runs on it, as this agent "
                "observed it. Absent: the GPU is in use, not held, or its activity is unknown. "
                "Simulated GPUs read it from their pods."
            ),
        ]
        | None
    ) = None
    mig_parent: Annotated[
        str, described("UUID of the GPU that this MIG slice is part of.", max_length=128)
    ] = ""
    mig_profile: Annotated[
        str,
        described(
            "Profile of this MIG slice, such as 1g.18gb. Empty: the device is a whole GPU.",
            max_length=32,
        ),
    ] = ""
    mig_start: Annotated[int, described("First memory slot of the slice.", ge=0, le=31)] | None = (
        None
    )
    mig_size: (
        Annotated[int, described("Number of memory slots of the slice.", ge=1, le=32)] | None
    ) = None
    simulated: Annotated[
        bool, described("True: the GPU does not exist; the agent simulates it.")
    ] = False


def counted(resources: Iterable[str]) -> str:
    """Return «nvidia.com/gpu: 4, amd.com/gpu: 2», counted from the resource of each device."""
    counts = Counter(resources)
    return ", ".join(f"{name}: {counts[name]}" for name in counts)[:MAX_COUNTS]


class GpuHolder(Wire, frozen=True):
    """A pod that holds GPUs, as its node reports it."""

    namespace: Annotated[str, described("The pod's namespace.", min_length=1, max_length=63)]
    name: Annotated[str, described("The pod's name.", min_length=1, max_length=253)]
    uid: Annotated[str, described("The pod's UID.", max_length=64)] = ""
    devices: Annotated[
        tuple[DeviceShare, ...], described("Devices that the pod holds.", max_length=MAX_GPUS)
    ] = ()


class Measured(Wire, frozen=True):
    """Result of a GPU's last burn-in, with the last measurements."""

    gpu: Annotated[str, described("UUID of the GPU.", min_length=1, max_length=MAX_UUID)]
    at: Annotated[Timestamp, described("Time at which the operator read the result.")]
    outcome: Annotated[
        Outcome,
        described(
            "Passed. Failed: the GPU is unhealthy. Unknown: the burn-in gave no result for the GPU."
        ),
    ]
    message: Annotated[str, described("Result in words, or why there is none.", max_length=256)] = (
        ""
    )
    tflops: (
        Annotated[float, described("Matrix products of the fastest type, in TFLOP/s.", ge=0)] | None
    ) = None
    memory_gb_per_s: (
        Annotated[float, described("Copies within the GPU, read plus write, in GB/s.", ge=0)] | None
    ) = None
    host_to_device_gb_per_s: (
        Annotated[float, described("Copies from pinned host memory, in GB/s.", ge=0)] | None
    ) = None
    device_to_host_gb_per_s: (
        Annotated[float, described("Copies to pinned host memory, in GB/s.", ge=0)] | None
    ) = None
    simulated: Annotated[bool, described("True: simulated, measured on a CPU.")] = False


class AllReduce(Wire, frozen=True):
    """All-reduce over all GPUs of a node."""

    at: Annotated[Timestamp, described("Time at which the operator read the result.")]
    gpus: Annotated[int, described("Number of GPUs.", ge=2, le=MAX_GPUS)]
    bus_gb_per_s: (
        Annotated[float, described("Bus bandwidth with the largest buffer, in GB/s.", ge=0)] | None
    ) = None
    message: Annotated[str, described("Why there is no measurement.", max_length=256)] = ""
    simulated: Annotated[bool, described("True: simulated, measured on CPUs.")] = False


class GpuNodeStatus(Wire, frozen=True):
    """State of the node's GPUs. The heartbeat is the Lease gpunode-NAME."""

    mode: Annotated[
        Mode,
        described(
            "owned: gpupack assigns this node's GPUs. observed: another device plugin assigns "
            "them, and gpupack chooses only the node."
        ),
    ] = "owned"
    resources: Annotated[
        tuple[Resource, ...],
        described(
            "Extended resources of this node's GPUs.",
            min_length=1,
            max_length=MAX_RESOURCES,
        ),
    ] = (GPU,)
    resource_counts: Annotated[
        str,
        described(
            "Number of GPUs of each resource, for `kubectl get`: nvidia.com/gpu: 4.",
            max_length=MAX_COUNTS,
        ),
    ] = ""
    devices: Annotated[
        tuple[GpuDevice, ...], described("The GPUs of this node.", max_length=MAX_GPUS)
    ] = ()
    holders: Annotated[
        tuple[GpuHolder, ...],
        described(
            "owned: pods that are deleted from the API and whose processes still hold GPUs. "
            "observed: all pods that hold GPUs.",
            max_length=1024,
        ),
    ] = ()
    gpus: Annotated[int, described("Number of GPUs.", ge=0, le=MAX_GPUS)] = 0
    healthy: Annotated[int, described("Number of Healthy GPUs.", ge=0, le=MAX_GPUS)] = 0
    free: Annotated[
        int,
        described("Number of GPUs that are Healthy or Degraded and not held.", ge=0, le=MAX_GPUS),
    ] = 0
    shared: Annotated[
        int, described("Number of GPUs with shares that are held.", ge=0, le=MAX_GPUS)
    ] = 0
    held: Annotated[int, described("Number of GPUs that are held whole.", ge=0, le=MAX_GPUS)] = 0
    held_by: Annotated[
        str,
        described(
            "Pods that hold GPUs or shares, as NAMESPACE/NAME, for `kubectl get`; +3 means three "
            "more. It is a few seconds late.",
            max_length=256,
        ),
    ] = ""
    model: Annotated[str, described("Models of the GPUs, separated by commas.", max_length=512)] = (
        ""
    )
    simulated: Annotated[bool, described("True: at least one GPU is simulated.")] = False
    stale_since: (
        Annotated[
            Timestamp,
            described(
                "Time since which the agent cannot read the GPUs, because their driver hangs or "
                "failed. The status shows the last readings. Absent: the readings are current."
            ),
        ]
        | None
    ) = None
    driver_version: Annotated[str, described("Version of the GPU driver.", max_length=64)] = ""
    cuda_version: Annotated[
        str, described("Newest CUDA version that the driver supports.", max_length=64)
    ] = ""
    agent_version: Annotated[str, described("Version of the agent.", max_length=64)] = ""
    boot_id: Annotated[str, described("Boot ID of the node at the last change.", max_length=64)] = (
        ""
    )
    observed_at: (
        Annotated[Timestamp, described("Time of the last change of this status.")] | None
    ) = None
    measured: Annotated[
        tuple[Measured, ...],
        described(
            "Results of burn-ins. The operator writes them.",
            max_length=MAX_GPUS,
        ),
    ] = ()
    all_reduce: (
        Annotated[
            AllReduce, described("All-reduce of all GPUs of the node. The operator writes it.")
        ]
        | None
    ) = None
    mig_gpus: Annotated[
        tuple[MigGpu, ...],
        described("GPUs in MIG mode, and GPUs with a wanted layout.", max_length=MAX_GPUS),
    ] = ()
    conditions: Annotated[
        tuple[Condition, ...],
        described(
            "InventoryRejected: the inventory contradicts itself or that of another node, and the "
            "node gets no work; the scheduler writes it. InventoryUnavailable: the agent cannot "
            "read the GPUs, because the driver is missing, failed or hangs; the status shows the "
            "last readings. PodCgroupsMissing: the agent finds no cgroups of pods, so it cannot "
            "tell which pods ended, and their GPUs stay held.",
            max_length=8,
            schema=BY_TYPE,
        ),
    ] = ()


class Maintenance(Wire, frozen=True):
    """Maintenance of GPUs: they get no new work."""

    reason: Annotated[
        str,
        described(
            "Reason, which is shown to the owners of moved, stopped and evicted jobs and pods.",
            min_length=1,
            max_length=256,
        ),
    ]
    gpus: Annotated[
        tuple[Annotated[str, described("UUID of a GPU.", min_length=1, max_length=MAX_UUID)], ...],
        described(
            "UUIDs of the GPUs. Default: all GPUs of the node. Where another device plugin "
            "assigns the GPUs, the maintenance is always of all.",
            min_length=1,
            max_length=MAX_GPUS,
        ),
    ] = ()
    drain: Annotated[
        Drain,
        described(
            "Never: running work continues. Movable: GPUJobs with movable: true are moved as soon "
            "as they fit elsewhere. All: in addition, from stopAt, other GPUJobs are stopped and "
            "return to the queue, and standalone pods are evicted within their "
            "PodDisruptionBudgets. Default: Never."
        ),
    ] = "Never"
    stop_at: (
        Annotated[
            Timestamp,
            described(
                "With drain: All, time until which work that cannot be moved continues. Default: "
                "now."
            ),
        ]
        | None
    ) = None

    rules: ClassVar = (
        Rule(
            "!has(self.stopAt) || self.drain == 'All'",
            "stopAt has an effect only with drain: All; set drain: All or remove stopAt",
            ".stopAt",
        ),
    )

    def covers(self, uuid: str, mode: Mode) -> bool:
        """Return whether the maintenance covers this GPU of a node in that mode."""
        return mode == "observed" or not self.gpus or uuid in self.gpus


class Quarantine(Wire, frozen=True):
    """Quarantine of a GPU that was unhealthy or is new."""

    gpu: Annotated[str, described("UUID of the GPU.", min_length=1, max_length=MAX_UUID)]
    phase: Annotated[
        Phase,
        described(
            "Quarantined: no new work. Acceptance: only a burn-in, because the GPU is new or "
            "recovered; its result decides. Probation: the GPU recovered and is used last, until "
            "it has been healthy for operator.probationSeconds. Slow: it passed its burn-in, is "
            "slower than others of its model, and is used last. Default: Quarantined."
        ),
    ] = "Quarantined"
    cause: Annotated[str, described("Cause of the quarantine.", max_length=256)] = ""
    since: Annotated[Timestamp, described("Time since which it is in this phase.")] | None = None
    until: (
        Annotated[
            Timestamp,
            described("Time of the next burn-in, after one that failed."),
        ]
        | None
    ) = None
    relapses: Annotated[
        int,
        described(
            "Number of relapses and failed burn-ins. Each doubles the next waiting time.",
            ge=0,
            le=MAX_RELAPSES,
        ),
    ] = 0


class GpuNodeSpec(Wire, frozen=True):
    """Settings of administrators for the node's GPUs."""

    maintenance: Annotated[
        tuple[Maintenance, ...],
        described(
            "Maintenance of GPUs: they get no new work. Administrators write it.",
            max_length=MAX_MAINTENANCE,
        ),
    ] = ()
    quarantine: Annotated[
        tuple[Quarantine, ...],
        described(
            "GPUs that were Cordoned or Failed, or are in acceptance. The operator writes it; a "
            "restart of the agent does not change it. Remove an entry to use the GPU again at "
            "once.",
            max_length=MAX_GPUS,
        ),
    ] = ()
    mig_layouts: Annotated[
        tuple[MigLayout, ...],
        described(
            "Wanted MIG layouts, where the chart's agent.migLayouts permits it. A GPU is "
            "repartitioned when no pod holds its slices. GPUs without an entry keep their layout.",
            max_length=MAX_GPUS,
            schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["gpu"]},
        ),
    ] = ()
