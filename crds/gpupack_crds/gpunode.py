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
        described("The GPU's index on its node, as the driver counts.", ge=0, le=MAX_NUMBER),
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
            "Healthy; Degraded: it is used where no other could be; Cordoned: what holds it goes "
            "on, and it gets no new work; Failed: it does not work, and what holds it leaves."
        ),
    ] = "Healthy"
    cause: Annotated[str, described("Why the GPU is not Healthy.", max_length=256)] = ""
    causes: Annotated[
        tuple[Annotated[str, described("Name of a rule.", min_length=1, max_length=64)], ...],
        described("The rules that speak against it, the worst first.", max_length=MAX_CAUSES),
    ] = ()
    since: Annotated[Timestamp, described("Since when it is as unhealthy as that.")] | None = None
    recovering_since: (
        Annotated[
            Timestamp,
            described(
                "Since when it is better than its health says: that follows once it has been so "
                "for agent.hysteresisSeconds."
            ),
        ]
        | None
    ) = None
    xids: Annotated[
        tuple[Annotated[int, described("An XID of NVIDIA's catalogue.", ge=0)], ...],
        described(
            "Errors (XIDs) that the driver reported of this GPU. They count until the node boots "
            "or this GPUNode is deleted.",
            max_length=32,
        ),
    ] = ()
    numa_node: (
        Annotated[
            int,
            described("NUMA node that the GPU is attached to, where known.", ge=0, le=MAX_NUMBER),
        ]
        | None
    ) = None
    nvlink_clique: (
        Annotated[
            int,
            described(
                "GPUs of one number reach each other over NVLink; absent: none do.",
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
                "GPUs of one number read each other's memory without the host's, over NVLink or "
                "PCIe; absent: it reads no other's.",
                ge=0,
                le=MAX_NUMBER,
            ),
        ]
        | None
    ) = None
    nvlinks: Annotated[int, described("How many NVLinks it has.", ge=0, le=MAX_NVLINKS)] = 0
    nvlinks_down: Annotated[
        tuple[Annotated[int, described("Number of a link.", ge=0, le=MAX_NVLINKS)], ...],
        described("Which of them are down.", max_length=MAX_NVLINKS),
    ] = ()
    cpus: Annotated[
        str,
        described(
            "CPUs of the host that are near it, as Linux lists them: 0-47,96-143.", max_length=256
        ),
    ] = ""
    architecture: Annotated[
        str, described("As NVIDIA calls it, such as Hopper, where known.", max_length=32)
    ] = ""
    serial: Annotated[
        str, described("The board's serial number, where the driver tells it.", max_length=64)
    ] = ""
    pci_bus_id: Annotated[
        str,
        described("Where it is plugged in: domain:bus:device.function.", max_length=32),
    ] = ""
    compute_mode: Annotated[
        str,
        described(
            "Who may use it at once, as the driver says: default, exclusive_process, "
            "exclusive_thread or prohibited; several pods share it in default mode alone.",
            max_length=32,
        ),
    ] = ""
    resource: Annotated[
        str,
        described("The resource by which the kubelet hands it out.", min_length=1, max_length=253),
    ] = GPU
    limits: Annotated[
        Limits,
        described(
            "What holds limited shares of it to their percent and memory. MPS: CUDA's "
            "Multi-Process Service, and the agent. Simulated: nothing does, and they say so. None: "
            "it has no limited shares."
        ),
    ] = "None"
    idle_since: (
        Annotated[
            Timestamp,
            described(
                "Since when nothing runs on the GPU although pods hold it, as this agent has seen "
                "it; absent: something does, nobody holds it, or it is not known. Of a simulated "
                "GPU its holders' pods say it."
            ),
        ]
        | None
    ) = None
    mig_parent: Annotated[
        str, described("UUID of the GPU that this MIG slice is part of.", max_length=128)
    ] = ""
    mig_profile: Annotated[
        str, described("Profile of this MIG slice, such as 1g.18gb; empty: a GPU.", max_length=32)
    ] = ""
    mig_start: (
        Annotated[
            int, described("The first of the GPU's memory slots that the slice takes.", ge=0, le=31)
        ]
        | None
    ) = None
    mig_size: (
        Annotated[int, described("How many memory slots the slice takes.", ge=1, le=32)] | None
    ) = None
    simulated: Annotated[
        bool, described("True: there is no such GPU; the agent runs on a simulated inventory.")
    ] = False


def counted(resources: Iterable[str]) -> str:
    """Return «nvidia.com/gpu: 4, amd.com/gpu: 2», counted from the resource of each device."""
    counts = Counter(resources)
    return ", ".join(f"{name}: {counts[name]}" for name in counts)[:MAX_COUNTS]


class GpuHolder(Wire, frozen=True):
    """A pod that holds GPUs, as the node itself sees it."""

    namespace: Annotated[str, described("The pod's namespace.", min_length=1, max_length=63)]
    name: Annotated[str, described("The pod's name.", min_length=1, max_length=253)]
    uid: Annotated[str, described("The pod's UID.", max_length=64)] = ""
    devices: Annotated[
        tuple[DeviceShare, ...], described("What it holds.", max_length=MAX_GPUS)
    ] = ()


class Measured(Wire, frozen=True):
    """What a burn-in found of one GPU; figures are those of its last one that told any."""

    gpu: Annotated[str, described("UUID of the GPU.", min_length=1, max_length=MAX_UUID)]
    at: Annotated[Timestamp, described("When its result was read.")]
    outcome: Annotated[
        Outcome,
        described("Passed; Failed: it is not healthy; Unknown: no burn-in said anything about it."),
    ]
    message: Annotated[
        str, described("What it found, or why it found nothing.", max_length=256)
    ] = ""
    tflops: (
        Annotated[float, described("Products of its fastest type, in TFLOP/s.", ge=0)] | None
    ) = None
    memory_gb_per_s: (
        Annotated[float, described("Copies within the GPU, read and written, in GB/s.", ge=0)]
        | None
    ) = None
    host_to_device_gb_per_s: (
        Annotated[float, described("Copies from pinned memory of the host, in GB/s.", ge=0)] | None
    ) = None
    device_to_host_gb_per_s: (
        Annotated[float, described("Copies to pinned memory of the host, in GB/s.", ge=0)] | None
    ) = None
    simulated: Annotated[bool, described("True: measured on a CPU, for want of a GPU.")] = False


class AllReduce(Wire, frozen=True):
    """How fast the GPUs of a node reduce together."""

    at: Annotated[Timestamp, described("When the result was read.")]
    gpus: Annotated[int, described("How many GPUs took part.", ge=2, le=MAX_GPUS)]
    bus_gb_per_s: (
        Annotated[float, described("Bus bandwidth of the largest buffer, in GB/s.", ge=0)] | None
    ) = None
    message: Annotated[str, described("Why there is no figure.", max_length=256)] = ""
    simulated: Annotated[bool, described("True: measured on CPUs, for want of GPUs.")] = False


class GpuNodeStatus(Wire, frozen=True):
    """What the agent found. Its heartbeat is the Lease gpunode-NAME, not this object."""

    mode: Annotated[
        Mode,
        described(
            "owned: gpupack hands out this node's GPUs. observed: another device plugin does, "
            "and gpupack only packs nodes."
        ),
    ] = "owned"
    resources: Annotated[
        tuple[Resource, ...],
        described(
            "The resources by which the kubelet hands out this node's GPUs.",
            min_length=1,
            max_length=MAX_RESOURCES,
        ),
    ] = (GPU,)
    resource_counts: Annotated[
        str,
        described(
            "How many GPUs of each resource there are, for the column: nvidia.com/gpu: 4.",
            max_length=MAX_COUNTS,
        ),
    ] = ""
    devices: Annotated[
        tuple[GpuDevice, ...], described("The GPUs of this node.", max_length=MAX_GPUS)
    ] = ()
    holders: Annotated[
        tuple[GpuHolder, ...],
        described(
            "owned: pods that the API does not know any more and whose processes still hold GPUs. "
            "observed: every pod that holds GPUs.",
            max_length=1024,
        ),
    ] = ()
    gpus: Annotated[int, described("How many GPUs there are.", ge=0, le=MAX_GPUS)] = 0
    healthy: Annotated[int, described("How many of them are Healthy.", ge=0, le=MAX_GPUS)] = 0
    free: Annotated[
        int, described("GPUs of which nothing is held, Healthy or Degraded.", ge=0, le=MAX_GPUS)
    ] = 0
    shared: Annotated[int, described("GPUs of which shares are held.", ge=0, le=MAX_GPUS)] = 0
    held: Annotated[int, described("GPUs that are held whole.", ge=0, le=MAX_GPUS)] = 0
    held_by: Annotated[
        str,
        described(
            "Pods that hold GPUs or shares of them, as NAMESPACE/NAME, for the column; +3: three "
            "more. A few seconds late.",
            max_length=256,
        ),
    ] = ""
    model: Annotated[
        str, described("Model of the GPUs; several are joined by commas.", max_length=512)
    ] = ""
    simulated: Annotated[bool, described("True when any of the GPUs is simulated.")] = False
    stale_since: (
        Annotated[
            Timestamp,
            described(
                "Since when the GPUs could not be looked at, because their driver hangs or has "
                "failed; what is said of them is from before. Absent: they are looked at."
            ),
        ]
        | None
    ) = None
    driver_version: Annotated[str, described("Version of the GPU driver.", max_length=64)] = ""
    cuda_version: Annotated[
        str, described("Newest CUDA version that the driver supports.", max_length=64)
    ] = ""
    agent_version: Annotated[str, described("Version of the agent.", max_length=64)] = ""
    boot_id: Annotated[
        str, described("Which boot of the node this was observed in.", max_length=64)
    ] = ""
    observed_at: Annotated[Timestamp, described("When this status last changed.")] | None = None
    measured: Annotated[
        tuple[Measured, ...],
        described(
            "What burn-ins found, written by the operator; agents leave it as it is.",
            max_length=MAX_GPUS,
        ),
    ] = ()
    all_reduce: (
        Annotated[AllReduce, described("Of all its GPUs together, written by the operator.")] | None
    ) = None
    mig_gpus: Annotated[
        tuple[MigGpu, ...],
        described("GPUs that are, or are to be, cut into MIG slices.", max_length=MAX_GPUS),
    ] = ()
    conditions: Annotated[
        tuple[Condition, ...],
        described(
            "InventoryRejected: True while the node gets no work because its inventory contradicts "
            "itself or that of another node; written by the scheduler, agents leave it as it is. "
            "InventoryUnavailable: True while the agent cannot look at the GPUs, because their "
            "driver is missing, has failed or hangs; what is said of them is from before. "
            "PodCgroupsMissing: True while the agent finds no cgroups of pods; every pod counts as "
            "alive, so GPUs of pods that ended stay held.",
            max_length=8,
            schema=BY_TYPE,
        ),
    ] = ()


class Maintenance(Wire, frozen=True):
    """GPUs that are to get no new work, and what becomes of what holds them."""

    reason: Annotated[
        str,
        described(
            "Why, told to those who are moved, stopped or evicted for it.",
            min_length=1,
            max_length=256,
        ),
    ]
    gpus: Annotated[
        tuple[Annotated[str, described("UUID of a GPU.", min_length=1, max_length=MAX_UUID)], ...],
        described(
            "Which GPUs of the node; absent: all. Where another device plugin hands the GPUs out "
            "it is all, whichever are named.",
            min_length=1,
            max_length=MAX_GPUS,
        ),
    ] = ()
    drain: Annotated[
        Drain,
        described(
            "Never: what holds the GPUs goes on. Movable: GPUJobs with movable: true are moved as "
            "soon as there is a place for them elsewhere. All: that, and from stopAt on the other "
            "GPUJobs are stopped and wait for another place, and pods of their own are evicted, as "
            "their PodDisruptionBudgets allow."
        ),
    ] = "Never"
    stop_at: (
        Annotated[
            Timestamp,
            described("With drain: All, until when what cannot be moved goes on; absent: now."),
        ]
        | None
    ) = None

    rules: ClassVar = (
        Rule(
            "!has(self.stopAt) || self.drain == 'All'",
            "only drain: All stops anybody; set drain: All or remove stopAt",
            ".stopAt",
        ),
    )

    def covers(self, uuid: str, mode: Mode) -> bool:
        """Return whether the maintenance covers this GPU of a node in that mode."""
        return mode == "observed" or not self.gpus or uuid in self.gpus


class Quarantine(Wire, frozen=True):
    """A GPU that was not well, and gets no new work until that is settled."""

    gpu: Annotated[str, described("UUID of the GPU.", min_length=1, max_length=MAX_UUID)]
    phase: Annotated[
        Phase,
        described(
            "Quarantined: it gets no new work. Acceptance: it is new, or well again, and gets a "
            "burn-in alone, which decides. Probation: it is well again, and used where no other "
            "could be, until it has stayed so for operator.probationSeconds. Slow: it passed, less "
            "fast than others of its model, and is used where no other could be."
        ),
    ] = "Quarantined"
    cause: Annotated[str, described("What was wrong with it.", max_length=256)] = ""
    since: Annotated[Timestamp, described("Since when it is in this phase.")] | None = None
    until: (
        Annotated[
            Timestamp,
            described("A burn-in found it wanting: until when it is not tried again."),
        ]
        | None
    ) = None
    relapses: Annotated[
        int,
        described(
            "How often it fell ill again, or failed its burn-in; each doubles the next time.",
            ge=0,
            le=MAX_RELAPSES,
        ),
    ] = 0


class GpuNodeSpec(Wire, frozen=True):
    """What the cluster's administrators want of the node; agents write the status alone."""

    maintenance: Annotated[
        tuple[Maintenance, ...],
        described("GPUs that are to get no new work.", max_length=MAX_MAINTENANCE),
    ] = ()
    quarantine: Annotated[
        tuple[Quarantine, ...],
        described(
            "GPUs that were Cordoned or Failed, or are tried out, written by the operator: what an "
            "agent says after a restart heals none. Remove an entry to use its GPU again at once.",
            max_length=MAX_GPUS,
        ),
    ] = ()
    mig_layouts: Annotated[
        tuple[MigLayout, ...],
        described(
            "How GPUs in MIG mode are to be cut, where the chart's agent.migLayouts allows it. "
            "Each is cut anew once nobody holds its slices; one that is not named stays as it is.",
            max_length=MAX_GPUS,
            schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["gpu"]},
        ),
    ] = ()
