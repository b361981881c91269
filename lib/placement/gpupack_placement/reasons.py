# SPDX-License-Identifier: Apache-2.0
"""Reasons why a request does not fit: one typed reason per node, counted.

Texts are byte-stable for the same state: kube-scheduler writes them into the pod's status, and a
text that varies would make every write trigger the next attempt.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gpupack_devices.units import memory_text
from gpupack_placement.extended import amount_text
from gpupack_placement.miss import NearestMiss
from gpupack_placement.request import REPLICA, Request, Share

DEFAULT_RESOURCE: Final = "gpupack.dev/gpu"
"""The resource name that requests GPUs with an empty `resource`."""


class Reason(StrEnum):
    """The reason why one node takes no worker; conditions and events carry these names."""

    NODE_UNKNOWN = "NodeUnknown"
    NODE_NOT_READY = "NodeNotReady"
    NODE_CORDONED = "NodeCordoned"
    TAINT_NOT_TOLERATED = "TaintNotTolerated"
    SELECTOR_MISMATCH = "SelectorMismatch"
    NO_GPUS = "NoGpus"
    RESOURCE_NAME_MISMATCH = "ResourceNameMismatch"
    ONLY_MIG_SLICES = "OnlyMigSlices"
    ONLY_REPLICAS = "OnlyReplicas"
    MIG_PROFILE_MISMATCH = "MigProfileMismatch"
    MODEL_MISMATCH = "ModelMismatch"
    GPU_MEMORY_TOO_SMALL = "GpuMemoryTooSmall"
    TOO_FEW_GPUS = "TooFewGpus"
    NO_NVLINK_CLIQUE = "NoNvlinkClique"
    GPU_FAILED = "GpuFailed"
    GPU_IN_MAINTENANCE = "GpuInMaintenance"
    TOO_FEW_FREE_GPUS = "TooFewFreeGpus"
    TOO_FEW_FREE_MIG_SLICES = "TooFewFreeMigSlices"
    TOO_FEW_FREE_REPLICAS = "TooFewFreeReplicas"
    NVLINK_CLIQUE_BUSY = "NvlinkCliqueBusy"
    NO_LIMITED_SHARES = "NoLimitedShares"
    SHARE_DOES_NOT_FIT = "ShareDoesNotFit"
    SHARED_BY_OTHERS = "SharedByOthers"
    TOO_MANY_SHARES = "TooManyShares"
    INSUFFICIENT_CPU = "InsufficientCpu"
    INSUFFICIENT_MEMORY = "InsufficientMemory"
    NO_SUCH_RESOURCE = "NoSuchResource"
    INSUFFICIENT_RESOURCE = "InsufficientResource"
    TOO_MANY_PODS = "TooManyPods"
    SPREAD_LIMIT = "SpreadLimit"
    NO_NODES = "NoNodes"

    def describe(
        self,
        request: Request,
        nearest: int | None = None,
        *,
        found: Sequence[str] = (),
        of_empty: bool = False,
    ) -> str:
        """Describe the reason.

        Args:
            request: the request.
            nearest: the most that one of these nodes has of the resource.
            found: what the GPUs of these nodes are instead: their resource names, or the most
                similar models. For extended resources: the ones that lack. For a share whose
                percent is free: the free memory on such a GPU.
            of_empty: the nodes are considered as if they were empty.
        """
        texts = _TEXTS | _TEXTS_OF_EMPTY if of_empty else _TEXTS
        text = texts[self].format(
            gpus=devices_text(request),
            free_gpus=devices_text(request, "free "),
            kinds="MIG slices" if request.slices else "GPUs",
            profile=request.slices.profile if request.slices else "",
            models=" or ".join(request.models),
            share=_share_text(request.share),
            gpu_memory=memory_text(_gpu_memory(request)),
            cpu=request.cpu,
            ram=memory_text(request.memory),
            resources=" or ".join(name or DEFAULT_RESOURCE for name in found),
            extended=", ".join(found or map(_extended_text, request.extended)),
        )
        if self is Reason.MODEL_MISMATCH and found:
            return f"{text} (nearest: {', '.join(found)})"
        if self is Reason.RESOURCE_NAME_MISMATCH:
            return text + _renamed(request, found)
        if self is Reason.SHARE_DOES_NOT_FIT and found and request.share is not None:
            percent = f"{request.share.milli / 10:g}%"
            which = "a GPU" if of_empty else f"a GPU with {percent} free"
            most = f"the most on {which} is {found[0]}"
            return f"{text} (memory is the limit: {most})"
        if nearest is None:
            return text
        return f"{text} ({self.nearest_text(self._amount(nearest), of_empty=of_empty)})"

    def _amount(self, nearest: int) -> str:
        """Return the amount `nearest` with its unit, if it has one."""
        if self in {Reason.INSUFFICIENT_MEMORY, Reason.GPU_MEMORY_TOO_SMALL}:
            return memory_text(nearest)
        return f"{nearest / 10:g}" if self is Reason.SHARE_DOES_NOT_FIT else str(nearest)

    def nearest_text(self, shown: object, *, of_empty: bool = False) -> str:
        """Describe the most that one of the nodes has."""
        text = _NEAREST[self].format(shown)
        return text.replace("most free on", "most on") if of_empty else text


_TEXTS = {
    Reason.NODE_UNKNOWN: "no inventory from a gpupack agent",
    Reason.NODE_NOT_READY: "node is not ready",
    Reason.NODE_CORDONED: "node is cordoned",
    Reason.TAINT_NOT_TOLERATED: "a taint is not tolerated",
    Reason.SELECTOR_MISMATCH: "node selector or affinity does not match",
    Reason.NO_GPUS: "node has no GPUs",
    Reason.RESOURCE_NAME_MISMATCH: "its GPUs are requested by another resource name: {resources}",
    Reason.ONLY_MIG_SLICES: "its GPUs are cut into MIG slices",
    Reason.ONLY_REPLICAS: "its GPUs are shared by time-slicing or MPS, none is allocated whole",
    Reason.MIG_PROFILE_MISMATCH: "no {kinds} {profile}",
    Reason.MODEL_MISMATCH: "model is not {models}",
    Reason.GPU_MEMORY_TOO_SMALL: "GPU memory is below {gpu_memory}",
    Reason.TOO_FEW_GPUS: "fewer than {gpus} that match",
    Reason.NO_NVLINK_CLIQUE: "no NVLink clique of {gpus}",
    Reason.GPU_FAILED: "too few healthy {kinds}",
    Reason.GPU_IN_MAINTENANCE: "too few {kinds} that are not in maintenance",
    Reason.TOO_FEW_FREE_GPUS: "fewer than {free_gpus}",
    Reason.TOO_FEW_FREE_MIG_SLICES: "fewer than {free_gpus}",
    Reason.TOO_FEW_FREE_REPLICAS: "fewer than {free_gpus}",
    Reason.NVLINK_CLIQUE_BUSY: "no NVLink clique with {free_gpus}",
    Reason.NO_LIMITED_SHARES: "no GPU enforces the limits of shares",
    Reason.SHARE_DOES_NOT_FIT: "no GPU has {share} free",
    Reason.SHARED_BY_OTHERS: "GPUs with {share} free have shares of another group",
    Reason.TOO_MANY_SHARES: "GPUs with {share} free have their maximum number of shares",
    Reason.INSUFFICIENT_CPU: "fewer than {cpu} milli-CPU free",
    Reason.INSUFFICIENT_MEMORY: "less than {ram} of memory free",
    Reason.NO_SUCH_RESOURCE: "the node does not have the requested {extended}",
    Reason.INSUFFICIENT_RESOURCE: "too little is free of the requested {extended}",
    Reason.TOO_MANY_PODS: "the node runs its maximum number of pods",
    Reason.SPREAD_LIMIT: "the spread rule allows no more workers here",
    Reason.NO_NODES: "there are no nodes",
}

_TEXTS_OF_EMPTY = {
    Reason.TOO_FEW_FREE_GPUS: "fewer than {gpus}",
    Reason.TOO_FEW_FREE_MIG_SLICES: "fewer than {gpus}",
    Reason.TOO_FEW_FREE_REPLICAS: "fewer than {gpus}",
    Reason.NVLINK_CLIQUE_BUSY: "no NVLink clique with {gpus}",
    Reason.SHARE_DOES_NOT_FIT: "no GPU has {share}",
    Reason.INSUFFICIENT_CPU: "fewer than {cpu} milli-CPU",
    Reason.INSUFFICIENT_MEMORY: "less than {ram} of memory",
    Reason.INSUFFICIENT_RESOURCE: "too little of the requested {extended}",
}
"""Texts for nodes that are considered as if they were empty."""

_NEAREST = {
    Reason.GPU_MEMORY_TOO_SMALL: "largest: {}",
    Reason.TOO_FEW_GPUS: "most on one node: {}",
    Reason.GPU_FAILED: "most healthy on one node: {}",
    Reason.GPU_IN_MAINTENANCE: "most on one node: {}",
    Reason.TOO_FEW_FREE_GPUS: "most free on one node: {}",
    Reason.TOO_FEW_FREE_MIG_SLICES: "most free on one node: {}",
    Reason.TOO_FEW_FREE_REPLICAS: "most free on one node: {}",
    Reason.SHARE_DOES_NOT_FIT: "most free on one GPU: {}%",
    Reason.INSUFFICIENT_CPU: "most free on one node: {}",
    Reason.INSUFFICIENT_MEMORY: "most free on one node: {}",
    Reason.NO_SUCH_RESOURCE: "most on one node: {}",
    Reason.INSUFFICIENT_RESOURCE: "most free on one node: {}",
    Reason.TOO_MANY_PODS: "most on one node: {}",
}


@dataclass(frozen=True, slots=True)
class Count:
    """The number of nodes that fail for a reason; `nearest` and `found` as in Reason.describe."""

    reason: Reason
    nodes: int
    nearest: int | None = None
    found: tuple[str, ...] = ()

    def describe(self, request: Request, *, of_empty: bool = False) -> str:
        """Describe the reason."""
        return self.reason.describe(request, self.nearest, found=self.found, of_empty=of_empty)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal: nothing was placed. `counts` cover every node considered, most frequent first.

    `never`: the request would not fit if the cluster were empty and all of it healthy; waiting is
    futile until nodes are added or changed. `nearest`: what would have fitted.

    For a gang, `gang` says what is missing and `placed` how many of its workers fit. Nodes are
    counted as they are: `fitting_nodes` of them fit a worker, and `counts` are about the others.
    `limit` is the most frequent reason after the placement of the workers that fit. For a gang of
    several roles all of this is about the workers of `role`.

    `is_of_empty_cluster`: the cluster was considered as if it were empty, so no figure shows the
    current state.
    """

    request: Request
    counts: tuple[Count, ...]
    total: int
    never: bool = False
    gang: str = ""
    placed: int = 0
    fitting_nodes: int = 0
    limit: Reason | None = None
    nearest: NearestMiss | None = None
    is_of_empty_cluster: bool = False
    role: str = ""

    @property
    def reason(self) -> Reason:
        """Most frequent reason, for conditions."""
        if self.limit is not None:
            return self.limit
        return self.counts[0].reason if self.counts else Reason.NO_NODES

    @property
    def message(self) -> str:
        """Whole refusal in one line."""
        causes = "; ".join(map(self._cause, self.counts))
        if not self.total:
            causes = Reason.NO_NODES.describe(self.request)
        parts = [self.gang, f"{self._fits}: {causes}" if causes else self._fits]
        if self.nearest:
            parts.append(self.nearest.text)
        if self.never and not self.is_of_empty_cluster:
            parts.append("it would not fit on the empty cluster either")
        return "; ".join(part for part in parts if part)

    def _cause(self, count: Count) -> str:
        text = count.describe(self.request, of_empty=self.is_of_empty_cluster)
        return f"{count_text(count.nodes, 'node')}: {text}"

    @property
    def _fits(self) -> str:
        """Text such as «0 of 3 nodes fit», «2 of 3 nodes have room for a worker»."""
        nodes, one = count_text(self.total, "node"), self.total == 1
        if not self.gang:
            return f"0 of {nodes} {'fits' if one else 'fit'}"
        rest = ", the others do not" if self.fitting_nodes and self.counts else ""
        has = f"{'has' if one else 'have'} room for a worker"
        verb = "could run a worker" if self.is_of_empty_cluster else has
        return f"{self.fitting_nodes} of {nodes} {verb}{rest}"


def request_text(request: Request) -> str:
    """Describe a request: «8 GPUs», «2 MIG slices 1g.10gb», «30% and 4 GiB of a GPU», «no GPU»."""
    if request.share is not None:
        return f"{_share_text(request.share)} of a GPU"
    return devices_text(request) if request.devices else "no GPU"


def devices_text(request: Request, which: str = "") -> str:
    """Return a text such as «8 free GPUs», «1 free MIG slice 1g.10gb»."""
    if request.slices is not None and request.slices.profile == REPLICA:
        return count_text(request.slices.number, f"{which}replica") + " of a shared GPU"
    if request.slices is not None:
        noun = count_text(request.slices.number, f"{which}MIG slice")
        return f"{noun} {request.slices.profile}"
    return count_text(request.gpus or 0, f"{which}GPU")


def _renamed(request: Request, found: Sequence[str]) -> str:
    """Return what to request instead, if these nodes have GPUs of the default resource name."""
    if not request.gpus or "/" not in request.resource or {"", DEFAULT_RESOURCE}.isdisjoint(found):
        return ""
    ours, theirs = (f"{name}: {request.gpus}" for name in (DEFAULT_RESOURCE, request.resource))
    return f" (request {ours} in place of {theirs})"


def _extended_text(resource: tuple[str, int]) -> str:
    name, amount = resource
    return f"{name}: {amount_text(name, amount)}"


def _gpu_memory(request: Request) -> int:
    return max(request.min_memory, request.share.memory if request.share else 0)


def _share_text(share: Share | None) -> str:
    if share is None:
        return ""
    return f"{share.milli / 10:g}%" + (f" and {memory_text(share.memory)}" if share.memory else "")


def count_text(number: int, noun: str) -> str:
    """Return a text such as «1 node», «2 nodes»."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
