# SPDX-License-Identifier: Apache-2.0
"""A cluster as a JSON-ready dict and back: nodes, devices and holdings.

    {"schema": 1, "tieSeed": null,
     "nodes": [{"name": "a", "cpuMilli": 64000, "memoryMiB": 512000, "labels": {"zone": "1"},
                "taints": [{"key": "team", "value": "x", "effect": "NoSchedule"}],
                "ready": true, "cordoned": false, "pods": null, "extended": {"rdma/hca": 8},
                "devices": [{"uuid": "GPU-1", "index": 0, "model": "H100", "memoryMiB": 81559,
                             "numaNode": 0, "clique": 0, "health": "Healthy", "maxShares": 1000,
                             "profile": "", "parent": "", "resource": "",
                             "limits": false, "speed": 1000}]}],
     "holders": [{"holder": "pod-1", "node": "a", "cpuMilli": 1000, "memoryMiB": 2048, "pods": 1,
                  "extended": {"rdma/hca": 1},
                  "devices": [{"uuid": "GPU-1", "milli": 500, "memoryMiB": 4096,
                               "group": ""}]}]}

`load` and `dump` are inverse; order matters, since ties between nodes go to the first. A document
that is written by hand may omit fields with a default: all but names, UUIDs, models, the memory of
devices, and milli and memory of what is held. The default of `index` is the place in the list. A
node may have `resource`, the default for its devices.
"""

from collections.abc import Mapping
from typing import Any, Final

from gpupack_devices.errors import DecisionError
from gpupack_devices.units import (
    WHOLE_GPU,
    DeviceUuid,
    Holder,
    MiB,
    MilliCpu,
    MilliGpu,
    NodeName,
)
from gpupack_placement.cluster import Cluster
from gpupack_placement.errors import InvalidSnapshot
from gpupack_placement.extended import MAX_AMOUNT, amounts
from gpupack_placement.fields import Fields
from gpupack_placement.model import (
    MAX_NUMA_NODE,
    MAX_PODS,
    MAX_SPEED,
    USUAL_SPEED,
    Device,
    Effect,
    Health,
    Node,
    Taint,
)
from gpupack_placement.placement import Grant, Placement

SCHEMA: Final = 1
"""The version of the format; it increases when an older document would be read wrongly."""

_HEALTH = {health.name.title(): health for health in Health}
_EFFECT = {effect.value: effect for effect in Effect}
_MAX_SEED = 1 << 64
_MAX_GPU_MEMORY = 1 << 28
_MAX_SHARES = 1 << 30


def dump(cluster: Cluster) -> dict[str, Any]:
    """Return all that `load` needs to build an equal cluster."""
    return {
        "schema": SCHEMA,
        "tieSeed": cluster.tie_seed,
        "nodes": [_node_dict(node) for node in cluster.nodes()],
        "holders": [_holder_dict(who, what) for who, what in cluster.held().items()],
    }


def load(document: Mapping[str, Any], *, strict: bool = True) -> Cluster:
    """Return the cluster that a document describes.

    `strict`: holdings must fit on nodes that exist. Otherwise they are adopted as facts, as a
    ledger does with what it reads from the API: the node may be absent for the moment, or two
    holders may claim one device.

    Raises:
        InvalidSnapshot: the first field that is wrong, with path and value.
    """
    top = Fields.of(document)
    if top.number("schema") != SCHEMA:
        raise top.error("schema", f"is not the version that can be read, {SCHEMA}")
    top.reject_unknown("schema", "tieSeed", "nodes", "holders")
    seed = top.number_or_none("tieSeed", minimum=-_MAX_SEED, maximum=_MAX_SEED)
    cluster = Cluster(tie_seed=seed)
    for fields in top.objects("nodes"):
        _add_node(cluster, fields)
    for fields in top.objects("holders", ()):
        _hold(cluster, fields, strict=strict)
    return cluster


def _add_node(cluster: Cluster, fields: Fields) -> None:
    try:
        node = _node(fields)
        if node.name in cluster:
            raise fields.error("name", "is the name of a node above, too")
        cluster.set_node(node)
    except InvalidSnapshot:
        raise
    except DecisionError as error:
        raise InvalidSnapshot(f"{fields.path}: {error}") from error


def _hold(cluster: Cluster, fields: Fields, *, strict: bool) -> None:
    fields.reject_unknown("holder", "node", "cpuMilli", "memoryMiB", "pods", "extended", "devices")
    try:
        take = cluster.take if strict else cluster.adopt
        take(Holder(fields.text("holder")), _placement(fields))
    except InvalidSnapshot:
        raise
    except DecisionError as error:
        raise InvalidSnapshot(f"{fields.path}: {error}") from error


def _node(fields: Fields) -> Node:
    fields.reject_unknown(*_NODE_FIELDS)
    devices, resource = enumerate(fields.objects("devices", ())), fields.text("resource", "")
    return Node(
        name=NodeName(fields.text("name")),
        devices=tuple(_device(device, place, resource) for place, device in devices),
        cpu=MilliCpu(fields.number("cpuMilli", 0)),
        memory=MiB(fields.number("memoryMiB", 0)),
        labels=fields.texts("labels"),
        taints=tuple(_taint(taint) for taint in fields.objects("taints", ())),
        ready=fields.boolean("ready", default=True),
        cordoned=fields.boolean("cordoned", default=False),
        pods=fields.number_or_none("pods", maximum=MAX_PODS),
        extended=amounts(fields.numbers("extended", maximum=MAX_AMOUNT)),
    )


def _taint(fields: Fields) -> Taint:
    fields.reject_unknown("key", "value", "effect")
    effect = fields.one_of("effect", _EFFECT, Effect.NO_SCHEDULE.value)
    return Taint(fields.text("key"), fields.text("value", ""), effect)


def _device(fields: Fields, place: int, resource: str) -> Device:
    fields.reject_unknown(*_DEVICE_FIELDS)
    return Device(
        uuid=DeviceUuid(fields.text("uuid")),
        index=fields.number("index", place),
        model=fields.text("model"),
        memory=MiB(fields.number("memoryMiB", minimum=1, maximum=_MAX_GPU_MEMORY)),
        numa_node=fields.number_or_none("numaNode", maximum=MAX_NUMA_NODE),
        clique=fields.number_or_none("clique"),
        health=fields.one_of("health", _HEALTH, "Healthy"),
        max_shares=fields.number("maxShares", WHOLE_GPU, maximum=_MAX_SHARES),
        profile=fields.text("profile", ""),
        parent=DeviceUuid(fields.text("parent", "")),
        resource=fields.text("resource", resource),
        limits=fields.boolean("limits", default=False),
        speed=fields.number("speed", USUAL_SPEED, minimum=1, maximum=MAX_SPEED),
    )


def _placement(fields: Fields) -> Placement:
    return Placement(
        NodeName(fields.text("node")),
        tuple(_grant(grant) for grant in fields.objects("devices", ())),
        MilliCpu(fields.number("cpuMilli", 0)),
        MiB(fields.number("memoryMiB", 0)),
        fields.number("pods", 1, maximum=1),
        amounts(fields.numbers("extended", maximum=MAX_AMOUNT)),
    )


def _grant(fields: Fields) -> Grant:
    fields.reject_unknown("uuid", "milli", "memoryMiB", "group")
    return Grant(
        DeviceUuid(fields.text("uuid")),
        MilliGpu(fields.number("milli", minimum=1, maximum=WHOLE_GPU)),
        MiB(fields.number("memoryMiB", maximum=_MAX_GPU_MEMORY)),
        fields.text("group", ""),
    )


def _node_dict(node: Node) -> dict[str, Any]:
    return {
        "name": node.name,
        "cpuMilli": node.cpu,
        "memoryMiB": node.memory,
        "labels": dict(node.labels),
        "taints": [{"key": t.key, "value": t.value, "effect": t.effect.value} for t in node.taints],
        "ready": node.ready,
        "cordoned": node.cordoned,
        "pods": node.pods,
        "extended": dict(node.extended),
        "devices": [_device_dict(device) for device in node.devices],
    }


def _device_dict(device: Device) -> dict[str, Any]:
    return {
        "uuid": device.uuid,
        "index": device.index,
        "model": device.model,
        "memoryMiB": device.memory,
        "numaNode": device.numa_node,
        "clique": device.clique,
        "health": device.health.name.title(),
        "maxShares": device.max_shares,
        "profile": device.profile,
        "parent": device.parent,
        "resource": device.resource,
        "limits": device.limits,
        "speed": device.speed,
    }


def _holder_dict(holder: Holder, placement: Placement) -> dict[str, Any]:
    return {
        "holder": holder,
        "node": placement.node,
        "cpuMilli": placement.cpu,
        "memoryMiB": placement.memory,
        "pods": placement.pods,
        "extended": dict(placement.extended),
        "devices": [
            {
                "uuid": grant.uuid,
                "milli": grant.milli,
                "memoryMiB": grant.memory,
                "group": grant.group,
            }
            for grant in placement.devices
        ],
    }


_NODE_FIELDS = (
    "name",
    "cpuMilli",
    "memoryMiB",
    "labels",
    "taints",
    "ready",
    "cordoned",
    "resource",
    "pods",
    "extended",
    "devices",
)
_DEVICE_FIELDS = (
    "uuid",
    "index",
    "model",
    "memoryMiB",
    "numaNode",
    "clique",
    "health",
    "maxShares",
    "profile",
    "parent",
    "resource",
    "limits",
    "speed",
)
