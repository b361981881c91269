# SPDX-License-Identifier: Apache-2.0
"""The GPU request of a container's limits or of a GPUJob's spec.

gpupack.dev/gpu: N                                      whole GPUs that gpupack hands out
gpupack.dev/gpu-share: 1, -percent: 1-99, -memory: M    a share of one of them
gpupack.dev/mig-1g.18gb: N, or another profile's        MIG slices of them
nvidia.com/gpu: N, or another name that is observed     whole GPUs of another device plugin
nvidia.com/gpu.shared: 1                                a replica of one that it shares

GPUJobs of the acceptance namespace test GPUs before their use, and get no others.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from gpupack_crds import names, quantity
from gpupack_crds.gpujob import GpuJobSpec
from gpupack_placement import REPLICA, MiB, MilliGpu, Share, Slices
from gpupack_scheduler.errors import RequestInvalid
from gpupack_scheduler.inventory import ACCEPTANCE
from gpupack_scheduler.limits import MAX_GPUS, believed_on_gpu
from gpupack_scheduler.requests import sharing

Quantities = Mapping[str, str | int | float]

_OF_A_SHARE = (names.GPU_SHARE, names.GPU_PERCENT, names.GPU_MEMORY)
OURS = (names.GPU, *_OF_A_SHARE)

MILLI_PER_PERCENT = 10
_WHOLE_PERCENT = 100


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GpuRequest:
    """Exactly one of whole GPUs, a share of one, or MIG slices; `resource` is placement's name."""

    gpus: int | None = None
    share: Share | None = None
    slices: Slices | None = None
    resource: str = ""


def requests_of(limits: Quantities, observed: Collection[str]) -> bool:
    """Tell whether these limits request GPUs, validly or not."""
    return (
        any(name in limits for name in OURS)
        or any(name in limits for name in observed)
        or any(name.startswith(names.MIG_PREFIX) for name in limits)
    )


def read(
    limits: Quantities,
    observed: Collection[str],
    *,
    annotations: Mapping[str, str],
    namespace: str,
) -> GpuRequest:
    """Return the request in the limits of one container and its pod's annotations.

    Raises:
        RequestInvalid: the limits request two kinds of GPU, more GPUs than any node may have, or a
            share that is incomplete, out of bounds, or of an isolation that no share has.
        QuantityInvalid: a quantity cannot be read.
    """
    asked = [name for name in (*OURS, *observed) if name in limits]
    asked += sorted(name for name in limits if name.startswith(names.MIG_PREFIX))
    kinds = {names.GPU_SHARE if name in _OF_A_SHARE else name: None for name in asked}
    if len(kinds) != 1:
        raise RequestInvalid(
            f"one container asks for {' and '.join(kinds) or 'no GPU'}; ask for one kind of GPU: "
            f"whole ones ({', '.join((names.GPU, *observed))}), a share ({names.GPU_SHARE}) or MIG "
            f"slices of one profile ({names.MIG_PREFIX}1g.18gb)"
        )
    (kind,) = kinds
    if kind == names.GPU_SHARE:
        share = sharing.of_annotations(_share(limits), annotations, namespace=namespace)
        return GpuRequest(share=share)
    if kind.startswith(names.MIG_PREFIX):
        return GpuRequest(slices=_slices(kind, limits[kind]))
    if kind.endswith(names.SHARED_SUFFIX):
        return _replica(kind, _whole(kind, limits[kind]))
    return GpuRequest(gpus=_whole(kind, limits[kind]), resource=resource_in_core(kind))


def total(parts: Sequence[GpuRequest]) -> GpuRequest:
    """Add up the requests of the containers of one pod.

    Raises:
        RequestInvalid: the containers request several kinds of GPU, or more GPUs than any node may
            have; or several request a share, or a replica, since two replicas may be of the same
            GPU.
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    kinds = {(part.gpus is None, _kind(part), part.resource) for part in parts}
    is_shared = first.share is not None or (first.slices is not None and first.resource)
    if len(kinds) != 1 or is_shared:
        raise RequestInvalid(
            f"{len(parts)} of its containers ask for GPUs; several may ask for whole GPUs of one "
            "resource, or for MIG slices of one profile, and only one may ask for a share or a "
            "replica of a GPU"
        )
    number = sum(part.slices.number if part.slices else part.gpus or 0 for part in parts)
    if number > MAX_GPUS:
        raise RequestInvalid(
            f"its containers ask for {number} GPUs together; no node has more than {MAX_GPUS}: "
            "ask for fewer, in more pods"
        )
    if first.slices is not None:
        return GpuRequest(slices=Slices(first.slices.profile, number))
    return GpuRequest(gpus=number, resource=first.resource)


def _kind(ask: GpuRequest) -> str:
    if ask.share is not None:
        return names.GPU_SHARE
    return ask.slices.profile if ask.slices else ""


def of_job(spec: GpuJobSpec, observed: Collection[str], *, namespace: str) -> GpuRequest:
    """Return the request of one worker of a GPUJob.

    Raises:
        RequestInvalid: a resource is not served, or a share is out of bounds.
        QuantityInvalid: a quantity cannot be read.
    """
    resource = spec.resource_name
    if resource != names.GPU and resource not in observed:
        raise RequestInvalid(
            f"resourceName {resource!r} is not served; use one of: "
            f"{', '.join((names.GPU, *observed))}"
        )
    if spec.mig is not None:
        if resource != names.GPU:
            raise RequestInvalid(f"{resource} has no mig; remove mig or resourceName")
        return GpuRequest(slices=Slices(spec.mig, spec.gpus or 1))
    if spec.share is None and namespace == names.ACCEPTANCE_NAMESPACE and resource == names.GPU:
        return GpuRequest(gpus=spec.gpus, resource=ACCEPTANCE)
    if spec.share is None and resource.endswith(names.SHARED_SUFFIX):
        return _replica(resource, spec.gpus or 1)
    if spec.share is None:
        return GpuRequest(gpus=spec.gpus, resource=resource_in_core(resource))
    if resource != names.GPU:
        raise RequestInvalid(f"GPUs of {resource} cannot be shared; ask for whole ones with gpus")
    memory = _share_memory("share.memory", spec.share.memory)
    share = Share(MilliGpu(spec.share.percent * MILLI_PER_PERCENT), memory)
    asked = sharing.in_isolation_group(
        share,
        isolation=spec.share.isolation,
        share_with=spec.share.share_with,
        namespace=namespace,
    )
    return GpuRequest(gpus=spec.gpus, share=asked)


def resource_in_core(name: str) -> str:
    """Return placement's name of a resource: placement knows no names of gpupack."""
    return "" if name == names.GPU else name


def _whole(kind: str, asked: str | float) -> int:
    gpus = quantity.count(asked)
    if gpus > MAX_GPUS:
        raise RequestInvalid(
            f"{kind} is {gpus}; no node has more than {MAX_GPUS} GPUs: ask for fewer, in more pods"
        )
    return gpus


def _replica(kind: str, number: int) -> GpuRequest:
    """Read a request for a replica: its plugin may reject more than one, and more give no more."""
    if number != 1:
        raise RequestInvalid(
            f"{kind} is {number}; ask for 1: it is a replica of a shared GPU, and two may be of "
            "the same GPU"
        )
    return GpuRequest(slices=Slices(REPLICA), resource=kind)


def _slices(kind: str, asked: str | float) -> Slices:
    profile, number = names.mig_profile(kind), _whole(kind, asked)
    if not profile:
        raise RequestInvalid(
            f"{kind} names no MIG profile; ask for one such as {names.MIG_PREFIX}1g.18gb"
        )
    return Slices(profile, number)


def _share(limits: Quantities) -> Share:
    missing = [name for name in _OF_A_SHARE if name not in limits]
    if missing:
        raise RequestInvalid(
            f"a share of a GPU needs {names.GPU_SHARE}: 1 with {names.GPU_PERCENT} and "
            f"{names.GPU_MEMORY} in the same container; add {' and '.join(missing)}"
        )
    slots = quantity.count(limits[names.GPU_SHARE])
    if slots != 1:
        raise RequestInvalid(
            f"{names.GPU_SHARE} is {slots}; a container gets one share of one GPU: ask for 1"
        )
    memory = _share_memory(names.GPU_MEMORY, limits[names.GPU_MEMORY])
    return Share(_share_milli(limits[names.GPU_PERCENT]), memory)


def _share_milli(asked: str | float) -> MilliGpu:
    percent = quantity.count(asked)
    if percent == _WHOLE_PERCENT:
        raise RequestInvalid(
            f"{names.GPU_PERCENT} is 100; for a whole GPU ask for {names.GPU}: 1 instead"
        )
    if not 0 < percent < _WHOLE_PERCENT:
        raise RequestInvalid(f"{names.GPU_PERCENT} is {percent}; ask for 1 to 99")
    return MilliGpu(percent * MILLI_PER_PERCENT)


def _share_memory(name: str, asked: str | float) -> MiB:
    memory = quantity.mebibytes(asked)
    if not memory:
        raise RequestInvalid(
            f"{name} is 0; ask for the GPU memory that the share needs, such as 10Gi"
        )
    return believed_on_gpu(memory)
