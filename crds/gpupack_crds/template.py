# SPDX-License-Identifier: Apache-2.0
"""The partial pod template of a GPUJob: fields that are passed on, and fields of gpupack.

Every field of a PodSpec is passed on. Only fields that a rule uses are declared here, because CEL
does not see fields that the schema does not declare.
"""

from typing import Annotated, Any, ClassVar, Final

from gpupack_crds.wire import Rule, Wire, described

PRESERVE = {"x-kubernetes-preserve-unknown-fields": True}

Argument = Annotated[str, described("One word of the command line.", max_length=32768)]


class EnvVar(Wire, frozen=True):
    """An environment variable; every field of Kubernetes' EnvVar is passed on."""

    name: Annotated[str, described("The variable's name.", min_length=1, max_length=256)]
    value: Annotated[str, described("The variable's value.", max_length=32768)] = ""


Quantity = Annotated[
    Any, described("A quantity such as 2 or 4Gi.", schema={"x-kubernetes-int-or-string": True})
]
Quantities = dict[str, Quantity]


class ResourceNeeds(Wire, frozen=True):
    """CPU, memory and the like, as in Kubernetes' ResourceRequirements."""

    limits: Annotated[
        Quantities, described("Limits, such as cpu and memory.", schema={"maxProperties": 16})
    ] = {}
    requests: Annotated[
        Quantities, described("Requests, such as cpu and memory.", schema={"maxProperties": 16})
    ] = {}


GPU_PREFIXES: Final = (
    "gpupack.dev/",
    "nvidia.com/gpu",
    "nvidia.com/mig-",
    "nvidia.com/pgpu",
    "nvidia.com/vgpu",
    "nvidia.com/priority",
    "amd.com/gpu",
    "amd.com/spx_",
    "amd.com/dpx_",
    "amd.com/qpx_",
    "amd.com/cpx_",
    "gpu.intel.com/",
    "habana.ai/gaudi",
    "huawei.com/Ascend",
    "huawei.com/npu",
    "aliyun.com/gpu",
    "volcano.sh/gpu",
    "volcano.sh/vgpu",
    "koordinator.sh/gpu",
    "tencent.com/vcuda",
)
"""Prefixes of GPU resources, gpupack's and those of other device plugins.

They cover whole GPUs, parts, partitions, their memory and cores. `nvidia.com/` alone would refuse
NICs of NVIDIA's network operator. The API server limits the cost of a rule: `startsWith` costs as
much as the prefix is long, and `matches` as much as the longest possible key.
"""


def _names_no_gpus(kind: str) -> str:
    """Return the CEL condition that no limit or request of a container names a GPU resource."""
    is_gpu = " || ".join(f"k.startsWith('{each}')" for each in GPU_PREFIXES)
    return f"self.resources.{kind}.all(k, !({is_gpu}))"


class TemplateContainer(Wire, frozen=True):
    """A container; every field of Kubernetes' Container is passed on."""

    name: Annotated[
        str,
        described(
            "The container named worker is the job, or the only one, where no workload is set; "
            "others run next to it.",
            min_length=1,
            max_length=63,
        ),
    ]
    image: Annotated[str, described("The image.", max_length=512)] = ""
    command: Annotated[
        tuple[Argument, ...], described("The program, instead of the image's.", max_length=64)
    ] = ()
    args: Annotated[
        tuple[Argument, ...], described("The program's arguments.", max_length=256)
    ] = ()
    env: Annotated[
        tuple[Annotated[EnvVar, described("One variable.", schema=PRESERVE)], ...],
        described("Environment variables, added to gpupack's own.", max_length=128),
    ] = ()
    resources: ResourceNeeds | None = None

    rules: ClassVar = (
        Rule(
            "!has(self.env) || self.env.all(e, !e.name.startsWith('GPUPACK_') && "
            "!(e.name in ['NVIDIA_VISIBLE_DEVICES', 'CUDA_VISIBLE_DEVICES']))",
            "variables of devices (GPUPACK_*, NVIDIA_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES) are "
            "set by gpupack; remove them",
            ".env",
        ),
        Rule(
            f"!has(self.resources) || ((!has(self.resources.limits) || {_names_no_gpus('limits')}) "
            f"&& (!has(self.resources.requests) || {_names_no_gpus('requests')}))",
            "request GPUs with spec.gpus or spec.share, not in the container's resources; GPUs of "
            "another device plugin with spec.resourceName and spec.gpus. Remove GPU resources such "
            "as nvidia.com/gpumem or amd.com/gpu from the container",
            ".resources",
        ),
    )


Forbidden = Annotated[str, described("Not allowed.", max_length=253)]


class SchedulingGate(Wire, frozen=True):
    """A gate that keeps a pod from being scheduled."""

    name: Annotated[str, described("The gate's name.", max_length=317)]


class TemplateSpec(Wire, frozen=True):
    """A partial PodSpec, merged over the one that gpupack makes; every field is passed on."""

    containers: Annotated[
        tuple[Annotated[TemplateContainer, described("One container.", schema=PRESERVE)], ...],
        described(
            "Containers, merged by name. A worker ends when the one that has its GPUs does. Others "
            "are stopped when the attempt has ended, and their pod is deleted: one that only helps "
            "belongs into initContainers, with restartPolicy: Always, where it ends by itself.",
            max_length=8,
        ),
    ] = ()
    init_containers: Annotated[
        tuple[Annotated[TemplateContainer, described("One container.", schema=PRESERVE)], ...],
        described("Containers that run before the others; they get no GPUs.", max_length=8),
    ] = ()
    node_name: Forbidden = ""
    scheduler_name: Forbidden = ""
    restart_policy: Forbidden = ""
    hostname: Forbidden = ""
    subdomain: Forbidden = ""
    priority_class_name: Forbidden = ""
    preemption_policy: Forbidden = ""
    active_deadline_seconds: Annotated[int, described("Not allowed.")] | None = None
    termination_grace_period_seconds: (
        Annotated[
            int,
            described(
                "Seconds for which a worker may run after SIGTERM, to write a "
                "checkpoint for example; then it is killed. Its GPUs stay held until it has ended. "
                "Absent: 30.",
                ge=0,
                le=3600,
            ),
        ]
        | None
    ) = None
    scheduling_gates: Annotated[
        tuple[Annotated[SchedulingGate, described("One gate.")], ...],
        described("Not allowed.", max_length=8),
    ] = ()

    rules: ClassVar = (
        Rule(
            "!has(self.nodeName)",
            "gpupack chooses the node; use nodeSelector or affinity to narrow its choice",
            ".nodeName",
        ),
        Rule(
            "!has(self.schedulerName)",
            "the scheduler is always gpupack's; remove schedulerName",
            ".schedulerName",
        ),
        Rule(
            "!has(self.restartPolicy)",
            "workers are restarted together, by spec.maxRestarts; remove restartPolicy",
            ".restartPolicy",
        ),
        Rule(
            "!has(self.hostname) && !has(self.subdomain)",
            "workers find each other by gpupack's host names; remove hostname and subdomain",
        ),
        Rule(
            "!has(self.priorityClassName) && !has(self.preemptionPolicy)",
            "pods of a gang cannot preempt others one by one; use spec.priority or "
            "spec.priorityClassName and remove priorityClassName and preemptionPolicy",
        ),
        Rule(
            "!has(self.activeDeadlineSeconds)",
            "a deadline of the pod would look like a lost pod; use spec.activeDeadlineSeconds",
            ".activeDeadlineSeconds",
        ),
        Rule(
            "!has(self.schedulingGates)",
            "a gated worker would hold its GPUs and not start; use spec.suspend",
            ".schedulingGates",
        ),
    )


class TemplateMetadata(Wire, frozen=True):
    """Labels and annotations for the pods."""

    labels: Annotated[
        dict[str, Annotated[str, described("A value.", max_length=63)]],
        described("Labels, added to gpupack's own.", schema={"maxProperties": 32}),
    ] = {}
    annotations: Annotated[
        dict[str, Annotated[str, described("A value.", max_length=4096)]],
        described("Annotations.", schema={"maxProperties": 32}),
    ] = {}

    rules: ClassVar = (
        Rule(
            "(!has(self.labels) || self.labels.all(k, !k.startsWith('gpupack.dev/'))) && "
            "(!has(self.annotations) || self.annotations.all(k, !k.startsWith('gpupack.dev/')))",
            "labels and annotations under gpupack.dev/ are gpupack's own; remove them",
        ),
    )


class Template(Wire, frozen=True):
    """A partial pod template, merged over the one that gpupack makes."""

    metadata: TemplateMetadata | None = None
    # Annotated is around the union: inside it, msgspec drops the description of a struct.
    spec: Annotated[
        TemplateSpec | None,
        described(
            "A partial PodSpec: containers, volumes, tolerations, nodeSelector, affinity, "
            "securityContext and so on.",
            schema=PRESERVE,
        ),
    ] = None
