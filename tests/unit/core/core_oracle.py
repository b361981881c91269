# SPDX-License-Identifier: Apache-2.0
"""Plain-Python references that try every possibility."""

from itertools import combinations

from gpupack_core import Grant, Health, Holder, Placement, matches_model


def choices(cluster, request, here):
    """Every set of devices of the node that could serve the request now."""
    a, row = cluster.arrays, cluster.row(here.name)
    if here.cordoned or not here.ready:
        return []
    if request.needs_gpu and here.resource != request.resource:
        return []
    if a.free_cpu[row] < request.cpu or a.free_ram[row] < request.memory:
        return []
    free = {device.uuid: device for device in cluster.free_devices(here.name)}
    able = [d for d in here.devices if serves(d, free[d.uuid], request)]
    if request.share:
        able = [d for d in able if shares_of(cluster, here.name, d) < d.max_shares]
    sets = list(combinations(able, 1 if request.share else request.gpus))
    return [s for s in sets if not request.needs_clique or linked(s)]


def serves(device, free, request):
    asked = request.models
    if device.health is not Health.HEALTHY or device.memory < request.min_memory:
        return False
    if asked and not any(matches_model(m, device.model) for m in asked):
        return False
    if request.share is None:
        return free.milli == 1000
    return free.milli >= request.share.milli and free.memory >= request.share.memory


def shares_of(cluster, name, device):
    held = cluster.holders_of(node=name, uuid=device.uuid)
    grants = [g for h in held for g in cluster.placement_of(h).devices]
    return sum(g.uuid == device.uuid and g.milli < 1000 for g in grants)


def linked(devices):
    cliques = {device.clique for device in devices}
    return len(cliques) == 1 and None not in cliques


def gang_fits(cluster, asked, used=frozenset(), placed=0):
    """Try every node and every set of devices for each worker in turn."""
    if placed == asked.workers:
        return True
    for here in cluster.nodes():
        crowded = asked.spread.one_worker_per_node and here.name in used
        if crowded or len(used | {here.name}) > (asked.spread.max_nodes or 99):
            continue
        for devices in choices(cluster, asked.request, here):
            fork = cluster.fork()
            fork.take(Holder(f"w{placed}"), placement(here, devices, asked.request))
            if gang_fits(fork, asked, used | {here.name}, placed + 1):
                return True
    return False


def placement(here, devices, request):
    part = request.share
    milli = part.milli if part else 1000
    grants = tuple(Grant(d.uuid, milli, part.memory if part else d.memory) for d in devices)
    return Placement(here.name, grants, request.cpu, request.memory)
