# SPDX-License-Identifier: Apache-2.0
"""A standalone pod behind the queue's gate, as far as the watch keeps it.

The queue knows neither volumes nor ports nor other pods' labels. It admits a pod that depends on
these all the same, and kube-scheduler's own filters choose among the nodes that remain.
"""

from typing import Final

import msgspec

from gpupack_crds import names
from gpupack_kubeclient import objects
from gpupack_scheduler.requests.node_rules import RawRules

MAX_BYTES: Final = 2048
"""Maximum size of rules about nodes, as JSON. All pending pods keep theirs. A pod with longer rules
is let through to filter, which reads them in kube-scheduler's call and adds the pod to the queue
then."""

MAX_PARTS: Final = 256
"""Maximum number of containers and of resources that they name. Of a pod with more only the gates
are kept, and it is let through to filter, too."""

_NULL: Final = msgspec.Raw(b"null")
_ANYWHERE: Final = frozenset(
    {"name", "configMap", "secret", "emptyDir", "projected", "downwardAPI", "hostPath", "image"}
)
"""Volumes that every node can have; only kube-scheduler knows where the others are."""
_NOTHING: Final = frozenset({b"null", b"{}", b"[]"})


class GatedPodSpec(objects.PodSpec, frozen=True):
    """The spec of a pod that only the queue's gate keeps from its scheduler.

    Attributes:
        rules: nodes that the pod may use, as bytes; parsed when the pod enters the queue.
        pinnable: nothing else by which kube-scheduler filters depends on the node.
    """

    rules: RawRules = RawRules(node_selector=_NULL, tolerations=_NULL, affinity=_NULL)
    pinnable: bool = False


class _Container(objects.Container, frozen=True):
    ports: msgspec.Raw = _NULL


class _Affinity(objects.View, frozen=True):
    pod_affinity: msgspec.Raw = _NULL
    pod_anti_affinity: msgspec.Raw = _NULL


class RawPodSpec(objects.PodSpec, frozen=True):
    """The spec as the watch sends it; `reduced` returns what is kept."""

    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()
    node_selector: msgspec.Raw = _NULL
    tolerations: msgspec.Raw = _NULL
    affinity: msgspec.Raw = _NULL
    topology_spread_constraints: msgspec.Raw = _NULL
    resource_claims: msgspec.Raw = _NULL
    volumes: msgspec.Raw = _NULL

    def reduced(self) -> objects.PodSpec:
        """Return the spec as it is kept, in most cases without rules about nodes.

        The rules are kept if they are short and only gpupack's gate holds the pod.
        """
        kept = {name: getattr(self, name) for name in objects.PodSpec.__struct_fields__}
        kept["containers"] = _without_ports(self.containers)
        kept["init_containers"] = _without_ports(self.init_containers)
        rules = (self.node_selector, self.tolerations, self.affinity)
        is_short = sum(len(bytes(each)) for each in rules) <= MAX_BYTES
        if not (is_gated(self) and is_short):
            return objects.PodSpec(**kept)
        # A Raw is a view of the whole response and would keep it in memory.
        copies = dict(zip(RawRules.__struct_fields__, (raw.copy() for raw in rules), strict=True))
        return GatedPodSpec(rules=RawRules(**copies), pinnable=self._is_pinnable(), **kept)

    def _is_pinnable(self) -> bool:
        near = _read(self.affinity, _Affinity)
        volumes = _read(self.volumes, tuple[dict[str, msgspec.Raw], ...])
        if near is _UNREADABLE or volumes is _UNREADABLE:
            return False
        given = volumes if isinstance(volumes, tuple) else ()
        if not all(volume.keys() <= _ANYWHERE for volume in given):
            return False
        raws = [self.topology_spread_constraints, self.resource_claims]
        if isinstance(near, _Affinity):
            raws += [near.pod_affinity, near.pod_anti_affinity]
        containers = (*self.containers, *self.init_containers)
        has_ports = any(b"hostPort" in bytes(c.ports) for c in containers)
        return not has_ports and all(bytes(raw) in _NOTHING for raw in raws)


_UNREADABLE: Final = object()


def _without_ports(containers: tuple[_Container, ...]) -> tuple[objects.Container, ...]:
    return tuple(
        objects.Container(name=c.name, resources=c.resources, restart_policy=c.restart_policy)
        for c in containers
    )


def bounded(pod: objects.Pod) -> objects.Pod:
    """Return the pod as it is kept while it waits; only its gates if it has too many parts."""
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    parts = len(containers) + len(pod.spec.overhead)
    parts += sum(len(c.resources.requests) + len(c.resources.limits) for c in containers)
    if parts <= MAX_PARTS:
        return pod
    spec = objects.PodSpec(scheduling_gates=pod.spec.scheduling_gates)
    return objects.Pod(metadata=pod.metadata, spec=spec)


def is_gated(spec: objects.PodSpec) -> bool:
    """Tell whether gpupack's gate is the only one; behind others a pod would hold idle GPUs."""
    return tuple(gate.name for gate in spec.scheduling_gates) == (names.QUEUE_GATE,)


def _read(raw: msgspec.Raw, kind: object) -> object:
    try:
        return msgspec.json.decode(raw, type=kind | None)  # type: ignore[operator]
    except (msgspec.MsgspecError, RecursionError):
        return _UNREADABLE
