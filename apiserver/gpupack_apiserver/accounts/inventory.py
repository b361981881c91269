# SPDX-License-Identifier: Apache-2.0
"""How much a GPU counts, and its model, from the ledger's inventory."""

from collections.abc import Iterable

import msgspec

from gpupack_apiserver.accounts.claim import HeldGpu
from gpupack_cost import charge_of_grant, model_label
from gpupack_crds import names
from gpupack_crds.devices import DeviceShare
from gpupack_placement import (
    WHOLE_GPU,
    Cluster,
    Device,
    DeviceUuid,
    Grant,
    MiB,
    MilliGpu,
    Node,
    NodeName,
)
from gpupack_scheduler.limits import MAX_GPUS
from gpupack_scheduler.requests.gpu_request import MILLI_PER_PERCENT


class Inventory:
    """The nodes of a cluster, which other parts keep up to date."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def held(self, node: str, shares: Iterable[DeviceShare]) -> tuple[HeldGpu, ...]:
        """Return named GPUs, slices and shares of a node; unknown ones have no model."""
        return tuple(self._held(node, share) for share in shares)

    def unnamed(self, node: str, tokens: dict[str, int]) -> tuple[HeldGpu, ...]:
        """Return GPUs, or replicas, of which only the number by resource is known.

        All are of one model. Shares and slices without a known device count nothing: such a pod
        never starts. A request for more GPUs than a node may have counts only that maximum for each
        resource.
        """
        found: list[HeldGpu] = []
        for resource, number in sorted(tokens.items()):
            if resource == names.GPU or not resource.startswith(f"{names.GROUP}/"):
                found += [self._unnamed(node, resource)] * min(number, MAX_GPUS)
        return tuple(found)

    def fill_models(self, node: str, held: tuple[HeldGpu, ...]) -> tuple[HeldGpu, ...]:
        """Return the GPUs with models that were unknown before."""
        return tuple(each if each.model else self._fill_model(node, each) for each in held)

    def _fill_model(self, node: str, held: HeldGpu) -> HeldGpu:
        if not held.uuid:
            return msgspec.structs.replace(held, model=self._model(node, held.resource))
        share = DeviceShare(uuid=held.uuid, percent=held.percent, memory_mib=held.memory)
        return self._held(node, share)

    def _held(self, name: str, share: DeviceShare) -> HeldGpu:
        milli = share.percent * MILLI_PER_PERCENT
        grant = Grant(
            DeviceUuid(share.uuid),
            MilliGpu(milli),
            MiB(share.memory_mib),
        )
        node = self._node(name)
        devices = node.devices if node else ()
        device = next((each for each in devices if each.uuid == share.uuid), None)
        if node is None or device is None:
            return HeldGpu(share.uuid, milli, "", share.percent, share.memory_mib)
        counts = charge_of_grant(grant, device, node.devices)
        model = model_label(device.model, device.memory)
        return HeldGpu(
            share.uuid,
            min(counts, WHOLE_GPU),
            model,
            share.percent,
            share.memory_mib,
        )

    def _unnamed(self, node: str, resource: str) -> HeldGpu:
        milli, here, first = (
            WHOLE_GPU,
            self._node(node),
            self._first(node, resource),
        )
        if here is not None and first is not None and first.is_slice:
            grant = Grant(first.uuid, WHOLE_GPU, first.memory)
            milli = MilliGpu(charge_of_grant(grant, first, here.devices))
        return HeldGpu("", milli, self._model(node, resource), resource=resource)

    def _model(self, name: str, resource: str) -> str:
        """Return the model of the first GPU of that resource."""
        first = self._first(name, resource)
        return model_label(first.model, first.memory) if first else ""

    def _first(self, name: str, resource: str) -> Device | None:
        """Return the first GPU of that resource; gpupack's own have no resource name there."""
        wanted = "" if resource == names.GPU else resource
        node = self._node(name)
        devices = node.devices if node else ()
        return next((each for each in devices if each.resource == wanted), None)

    def _node(self, name: str) -> Node | None:
        return self.cluster.node(NodeName(name))
