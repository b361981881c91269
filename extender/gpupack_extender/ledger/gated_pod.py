# SPDX-License-Identifier: Apache-2.0
"""A pod of its own behind the queue's gate, as far as the watch keeps it.

The queue knows neither volumes nor ports nor other pods' labels. A pod that has to do with those is
let in by it all the same, and finds its node among those that kube-scheduler's own filters leave.
"""

from typing import Final

import msgspec

from gpupack_crds import names
from gpupack_extender.node_rules import RawRules
from gpupack_kube import objects

MOST_BYTES: Final = 2048
"""Of rules about nodes, as JSON. All pods that wait keep theirs; one with longer rules is let
through to filter, which reads them in kube-scheduler's call and asks the queue then."""

_NULL: Final = msgspec.Raw(b"null")
_NOTHING: Final = frozenset({b"null", b"{}", b"[]"})


class GatedPodSpec(objects.PodSpec, frozen=True):
    """Of a pod that nothing but the queue's gate keeps from its scheduler.

    Attributes:
        rules: which nodes it may use, as bytes; they are parsed when the pod is to wait.
        pinnable: nothing else that kube-scheduler filters nodes by depends on the node.
    """

    rules: RawRules = RawRules(node_selector=_NULL, tolerations=_NULL, affinity=_NULL)
    pinnable: bool = False


class _Container(objects.Container, frozen=True):
    ports: msgspec.Raw = _NULL


class _Volume(objects.View, frozen=True):
    persistent_volume_claim: msgspec.Raw = _NULL
    ephemeral: msgspec.Raw = _NULL


class _Affinity(objects.View, frozen=True):
    pod_affinity: msgspec.Raw = _NULL
    pod_anti_affinity: msgspec.Raw = _NULL


class RawPodSpec(objects.PodSpec, frozen=True):
    """As the watch sends it; `reduced` is what is kept."""

    containers: tuple[_Container, ...] = ()
    node_selector: msgspec.Raw = _NULL
    tolerations: msgspec.Raw = _NULL
    affinity: msgspec.Raw = _NULL
    topology_spread_constraints: msgspec.Raw = _NULL
    resource_claims: msgspec.Raw = _NULL
    volumes: msgspec.Raw = _NULL

    def reduced(self) -> objects.PodSpec:
        """Without its rules about nodes, unless it waits behind our gate and they are short."""
        kept = {name: getattr(self, name) for name in objects.PodSpec.__struct_fields__}
        kept["containers"] = tuple(
            objects.Container(name=c.name, resources=c.resources, restart_policy=c.restart_policy)
            for c in self.containers
        )
        rules = (self.node_selector, self.tolerations, self.affinity)
        is_short = sum(len(bytes(each)) for each in rules) <= MOST_BYTES
        if not (is_gated(self) and is_short):
            return objects.PodSpec(**kept)
        # A Raw is a view of the whole answer, which would be kept with it.
        copies = dict(zip(RawRules.__struct_fields__, (raw.copy() for raw in rules), strict=True))
        return GatedPodSpec(rules=RawRules(**copies), pinnable=self._is_pinnable(), **kept)

    def _is_pinnable(self) -> bool:
        near = _read(self.affinity, _Affinity)
        volumes = _read(self.volumes, tuple[_Volume, ...])
        if near is _UNREADABLE or volumes is _UNREADABLE:
            return False
        raws = [self.topology_spread_constraints, self.resource_claims]
        if isinstance(near, _Affinity):
            raws += [near.pod_affinity, near.pod_anti_affinity]
        for volume in volumes if isinstance(volumes, tuple) else ():
            raws += [volume.persistent_volume_claim, volume.ephemeral]
        has_ports = any(b"hostPort" in bytes(c.ports) for c in self.containers)
        return not has_ports and all(bytes(raw) in _NOTHING for raw in raws)


_UNREADABLE: Final = object()


def is_gated(spec: objects.PodSpec) -> bool:
    """Whether our gate is the only one: a pod that waits for others, too, would hold GPUs idle."""
    return tuple(gate.name for gate in spec.scheduling_gates) == (names.QUEUE_GATE,)


def _read(raw: msgspec.Raw, kind: object) -> object:
    try:
        return msgspec.json.decode(raw, type=kind | None)  # type: ignore[operator]
    except (msgspec.MsgspecError, RecursionError):
        return _UNREADABLE
