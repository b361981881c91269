# SPDX-License-Identifier: Apache-2.0
"""Small builders, so that a test reads as cluster, request, expected placement."""

from dataclasses import replace

from gpupack_placement import (
    POLICIES,
    Cluster,
    Device,
    DeviceUuid,
    Gang,
    Grant,
    Health,
    Holder,
    MiB,
    MilliGpu,
    Node,
    NodeName,
    Placement,
    Refusal,
    Request,
    Share,
    Slices,
    Spread,
    decide,
)

BEST_FIT = POLICIES["best-fit"]
FIRST_FIT = POLICIES["first-fit"]
WORST_FIT = POLICIES["worst-fit"]
H100 = "NVIDIA H100 80GB HBM3"
A100 = "NVIDIA-A100-SXM4-40GB"


def device(node, index, *, model=H100, memory=80_000, **kw):
    return Device(DeviceUuid(f"{node}/{index}"), index, model, MiB(memory), **kw)


def node(
    name,
    gpus=8,
    *,
    cliques=None,
    numa=None,
    sick=(),
    maintained=(),
    model=H100,
    gpu_memory=80_000,
    max_shares=1000,
    resource="",
    **kw,
):
    """`cliques`/`numa`: one entry per GPU; `sick`, `maintained`: indices of such GPUs."""
    devices = tuple(
        device(
            name,
            i,
            model=model,
            memory=gpu_memory,
            clique=cliques[i] if cliques else None,
            numa_node=numa[i] if numa else None,
            health=_health(i, sick, maintained),
            max_shares=max_shares,
            resource=resource,
        )
        for i in range(gpus)
    )
    defaults = {"cpu": 64_000, "memory": 512_000}
    return Node(NodeName(name), devices, **(defaults | kw))


def _health(index, sick, maintained):
    if index in sick:
        return Health.FAILED
    return Health.MAINTENANCE if index in maintained else Health.HEALTHY


def mig(name, *parents, sick=(), **kw):
    """`parents`: one mapping of profile to number of slices for each GPU that is cut."""
    return replace(node(name, 0, **kw), devices=mig_devices(name, *parents, sick=sick))


def mig_devices(name, *parents, first=0, sick=()):
    profiles = [(f"{name}/P{p}", each) for p, cut in enumerate(parents) for each in _slices(cut)]
    return tuple(
        device(
            name,
            first + i,
            memory=10_000,
            profile=profile,
            parent=DeviceUuid(parent),
            health=Health.FAILED if first + i in sick else Health.HEALTHY,
        )
        for i, (parent, profile) in enumerate(profiles)
    )


def _slices(cut):
    return [profile for profile, number in cut.items() for _ in range(number)]


def taken(cluster, name, *indices, milli=1000, memory=80_000, holder=None, **kw):
    """Take devices of a node by index."""
    grants = tuple(Grant(DeviceUuid(f"{name}/{i}"), MilliGpu(milli), MiB(memory)) for i in indices)
    holder = Holder(holder or f"{name}:{indices}:{milli}")
    cluster.take(holder, Placement(NodeName(name), grants, **kw))
    return cluster


def cluster_of(*nodes, **kw):
    return Cluster(nodes, **kw)


def whole(gpus, **kw):
    return Request(gpus=gpus, **kw)


def share(milli, gpu_memory=0, **kw):
    return Request(share=Share(MilliGpu(milli), MiB(gpu_memory)), **kw)


def slices(profile, number=1, **kw):
    return Request(slices=Slices(profile, number), **kw)


def gang(workers, request, **spread):
    return Gang.of(workers, request, Spread(**spread))


def place(cluster, request, policy=BEST_FIT, **kw):
    """«node/0 node/1» of the decision, or the refusal's message."""
    return shown(decide(cluster, request, policy, **kw))


def shown(answer):
    if isinstance(answer, Refusal):
        return answer.message
    return " ".join(grant.uuid for grant in answer.devices) or answer.node


def with_health(original, index, health):
    devices = [replace(d, health=health) if d.index == index else d for d in original.devices]
    return replace(original, devices=tuple(devices))
