# SPDX-License-Identifier: Apache-2.0
"""GPUs that a container requests, in the words of several device plugins and schedulers."""

import dataclasses
import re
from typing import Any, Final

from gpupack_cli.convert.pod import Quantity, Resources
from gpupack_cli.convert.report import NotConverted, Report
from gpupack_cli.convert.settings import Settings
from gpupack_crds import names, quantity
from gpupack_crds.errors import QuantityInvalid
from gpupack_crds.template import GPU_PREFIXES
from gpupack_kubeclient.objects import Json

NVIDIA: Final = "nvidia.com/gpu"
NVIDIA_MIG: Final = "nvidia.com/mig-"
VOLCANO_WHOLE: Final = "volcano.sh/gpu-number"

OTHER_VENDORS: Final = frozenset(
    {
        "amd.com/gpu",
        "gpu.intel.com/i915",
        "gpu.intel.com/xe",
        "habana.ai/gaudi",
        "huawei.com/Ascend910",
        "huawei.com/Ascend310P",
        "huawei.com/Ascend310",
        "huawei.com/npu",
    }
)
"""Whole GPUs of other vendors: those of the chart's `vendors`."""

UNKNOWN_PERCENT: Final = 10
"""Percent of a share whose source limits memory alone: ten of them fit on a GPU.

HAMi's deviceSplitCount has the same default.
"""

MAX_MODEL: Final = 64
"""Maximum characters of a model."""

WHOLE: Final = 100
"""Percent of a whole GPU."""

KAI_FRACTION: Final = "gpu-fraction"
KAI_MEMORY: Final = "gpu-memory"
KAI_CONTAINER: Final = "gpu-fraction-container-name"
KAI_DEVICES: Final = "gpu-fraction-num-devices"
KAI_ANNOTATIONS: Final = (KAI_FRACTION, KAI_MEMORY, KAI_CONTAINER, KAI_DEVICES)


@dataclasses.dataclass(frozen=True, slots=True)
class _Vocabulary:
    """The resources of parts of GPUs of one device plugin; memory is in MiB."""

    count: str
    memory: str
    memory_percent: str
    percent: str

    @property
    def parts(self) -> tuple[str, str, str]:
        return (self.memory, self.memory_percent, self.percent)


_VOCABULARIES: Final = (
    _Vocabulary(NVIDIA, "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"),
    _Vocabulary(
        "volcano.sh/vgpu-number",
        "volcano.sh/vgpu-memory",
        "volcano.sh/vgpu-memory-percentage",
        "volcano.sh/vgpu-cores",
    ),
)
"""HAMi's resources, and those of Volcano's vGPU device plugin."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GpuRequest:
    """What one worker, or one container of a standalone pod, requests.

    Attributes:
        gpus: whole GPUs or MIG slices; 0 with a share.
        mig: profile of the slices; empty: none.
        percent: percent of a share; 0: none.
        memory: memory of the share, such as 3000Mi.
        limited: the share's limits are to be enforced.
        resource: resource of another device plugin; empty: gpupack's own GPUs.
    """

    gpus: int = 0
    mig: str = ""
    percent: int = 0
    memory: str = ""
    limited: bool = False
    resource: str = ""

    def spec(self) -> Json:
        """Return the fields of a GPUJob's spec."""
        if self.percent:
            isolation = {"isolation": "limited"} if self.limited else {}
            return {"share": {"percent": self.percent, "memory": self.memory} | isolation}
        named = {"resourceName": self.resource} if self.resource else {}
        return {"gpus": self.gpus} | ({"mig": self.mig} if self.mig else {}) | named

    def limits(self) -> Json:
        """Return the limits of a standalone pod's container."""
        if self.percent:
            return {
                names.GPU_SHARE: 1,
                names.GPU_PERCENT: self.percent,
                names.GPU_MEMORY: self.memory,
            }
        resource = names.mig_resource(self.mig) if self.mig else self.resource or names.GPU
        return {resource: self.gpus}


def is_gpu_resource(name: str) -> bool:
    """Tell whether a resource is a GPU, a part of one, or about one."""
    return name.startswith(GPU_PREFIXES)


def kai_request(
    annotations: dict[str, str], settings: Settings, report: Report, *, path: str
) -> GpuRequest | None:
    """Return the part of a GPU that KAI's annotations of a pod request; None: they request none."""
    if not {KAI_FRACTION, KAI_MEMORY} & annotations.keys():
        return None
    if annotations.get(KAI_DEVICES, "1") != "1":
        raise NotConverted(
            f"{path}.{KAI_DEVICES}",
            annotations[KAI_DEVICES],
            "a worker has a share of one GPU; request whole GPUs, or one worker for each part",
        )
    if fraction := annotations.get(KAI_FRACTION):
        where = f"{path}.{KAI_FRACTION}"
        try:
            percent = round(float(fraction) * WHOLE)
        except (ValueError, OverflowError):
            percent = 0
        if not 0 < percent <= WHOLE:
            raise NotConverted(where, fraction, "write a fraction between 0 and 1")
        memory = _memory_of(percent, settings)
        return _share(percent, memory, report, path=where, value=fraction, count=1)
    where = f"{path}.{KAI_MEMORY}"
    memory = _number(annotations[KAI_MEMORY], where)
    percent = _percent_of(memory, settings, report, path=where)
    return _share(percent, memory, report, path=where, value=memory, count=1)


def gpu_request(
    resources: Resources, settings: Settings, report: Report, *, path: str
) -> GpuRequest | None:
    """Return the GPUs that a container requests; None: it requests none.

    Raises:
        NotConverted: a quantity is invalid, or the container requests GPUs of several kinds.
    """
    amounts = {
        name: amount
        for name in resources.names
        if is_gpu_resource(name) and (amount := resources.amount(name)) is not None
    }
    found = [
        request
        for request in (
            *(_parts(each, amounts, settings, report, path=path) for each in _VOCABULARIES),
            *(_whole(name, amounts, settings, path=path) for name in (*OTHER_VENDORS,)),
            _whole(VOLCANO_WHOLE, amounts, settings, path=path),
            *(_slices(name, amounts[name], path=path) for name in amounts),
        )
        if request is not None
    ]
    known = {NVIDIA, VOLCANO_WHOLE, *OTHER_VENDORS}
    known |= {name for each in _VOCABULARIES for name in (each.count, *each.parts)}
    for name in sorted(amounts.keys() - known):
        if not _profile(name):
            report.dropped(f"{path}.{name}", amounts[name], "no GPUJob field has this meaning")
    if len(found) > 1:
        raise NotConverted(
            path, sorted(amounts), "a worker has GPUs of one kind; split the job by kind"
        )
    return found[0] if found else None


def _whole(
    name: str, amounts: dict[str, Quantity], settings: Settings, *, path: str
) -> GpuRequest | None:
    count = _number(amounts.get(name, 0), f"{path}.{name}")
    if not count:
        return None
    keeps = settings.keep_resource or name in OTHER_VENDORS
    return GpuRequest(gpus=count, resource=name if keeps else "")


def _slices(name: str, amount: Quantity, *, path: str) -> GpuRequest | None:
    profile = _profile(name)
    count = _number(amount, f"{path}.{name}") if profile else 0
    return GpuRequest(gpus=count, mig=profile) if count else None


def _profile(resource: str) -> str:
    """Return the profile of one of NVIDIA's MIG resources; empty for any other resource."""
    if not resource.startswith(NVIDIA_MIG):
        return ""
    return names.mig_profile(names.MIG_PREFIX + resource.removeprefix(NVIDIA_MIG))


def _parts(
    words: _Vocabulary,
    amounts: dict[str, Quantity],
    settings: Settings,
    report: Report,
    *,
    path: str,
) -> GpuRequest | None:
    given = {name: _number(amounts.get(name, 0), f"{path}.{name}") for name in words.parts}
    memory, memory_percent, percent = given.values()
    if not (memory or memory_percent or percent):
        return _whole(words.count, amounts, settings, path=path)
    count = _number(amounts.get(words.count, 1), f"{path}.{words.count}")
    if percent >= WHOLE:
        report.note(f"{path}.{words.percent}", percent, "all of a GPU's compute: a whole GPU")
        return GpuRequest(gpus=count)
    if memory_percent >= WHOLE or not (memory or memory_percent):
        report.note(
            path, given, "all of a GPU's memory: a whole GPU, which no other job uses at the time"
        )
        return GpuRequest(gpus=count)
    where = f"{path}.{words.memory if memory else words.memory_percent}"
    value = memory or memory_percent
    if settings.keep_resource:
        report.note(
            where, value, "a share is part of a GPU that gpupack assigns, not of the plugin"
        )
    needed = memory or _memory_of(memory_percent, settings)
    limited = bool(percent)
    if not percent:
        report.dropped(
            where,
            value,
            "a cooperative share: its memory is counted and not enforced; isolation: limited "
            "enforces memory and percent",
        )
        percent = memory_percent or _percent_of(memory, settings, report, path=where)
    return _share(percent, needed, report, path=where, value=value, count=count, limited=limited)


def _share(  # noqa: PLR0913 - the parts of one share
    percent: int,
    memory: int,
    report: Report,
    *,
    path: str,
    value: Any,
    count: int,
    limited: bool = False,
) -> GpuRequest:
    if not memory:
        report.dropped(
            path,
            value,
            "whole GPUs: a share's memory is an amount; give the memory of one GPU, such as "
            "--gpu-memory 80Gi",
        )
        return GpuRequest(gpus=count)
    if count > 1:
        report.dropped(
            path, value, f"{count} whole GPUs: a worker has a share of one GPU, or whole GPUs"
        )
        return GpuRequest(gpus=count)
    if percent >= WHOLE:
        return GpuRequest(gpus=count)
    return GpuRequest(percent=percent, memory=f"{memory}Mi", limited=limited)


def _memory_of(percent: int, settings: Settings) -> int:
    """Return MiB; 0: the memory of a GPU is unknown."""
    return settings.gpu_memory_mib * percent // WHOLE


def _percent_of(memory: int, settings: Settings, report: Report, *, path: str) -> int:
    """Return the percent of a share of this memory in MiB."""
    if settings.gpu_memory_mib:
        return max(1, -(-memory * WHOLE // settings.gpu_memory_mib))
    report.note(
        path,
        memory,
        f"the source has no percentage of compute: share.percent is {UNKNOWN_PERCENT}; change it, "
        "or give the memory of one GPU (--gpu-memory 80Gi), and it is in proportion",
    )
    return UNKNOWN_PERCENT


def _number(amount: Quantity, path: str) -> int:
    try:
        return quantity.count(amount)
    except QuantityInvalid as error:
        raise NotConverted(path, amount, str(error)) from error


def is_model(text: str) -> bool:
    """Tell whether gpuModels accepts a text."""
    is_other = re.search(r"[:=]|^ *[0-9]+ *[xX*]|[.][a-z]+/", text) is not None
    return 0 < len(text) <= MAX_MODEL and not is_other
