# SPDX-License-Identifier: Apache-2.0
"""Plain-Python references that try every possibility."""

from collections import Counter
from itertools import combinations

from gpupack_placement import Grant, Health, Holder, Placement, Refusal, decide, matches_model


def choices(cluster, request, here):
    """Every set of devices of the node that could serve the request now."""
    a, row = cluster.arrays, cluster.row(here.name)
    if here.cordoned or not here.ready:
        return []
    if a.free_cpu[row] < request.cpu or a.free_ram[row] < request.memory:
        return []
    if any(dict(here.extended).get(name, 0) < n for name, n in needed(cluster, request, here)):
        return []
    if here.pods is not None and len(cluster.holders_on(here.name)) >= here.pods:
        return []
    free = {device.uuid: device for device in cluster.free_devices(here.name)}
    able = [d for d in here.devices if serves(d, free[d.uuid], request)]
    if request.slices:
        able = [d for d in able if not cluster.holders_of(node=here.name, uuid=d.uuid)]
    if request.share:
        able = [d for d in able if shares_of(cluster, here.name, d) < d.max_shares]
    sets = list(combinations(able, request.devices))
    return [s for s in sets if not request.needs_clique or linked(s)]


def needed(cluster, request, here):
    """Return the request plus what is already held of the same resources."""
    held = Counter()
    for holder in cluster.holders_on(here.name):
        held.update(dict(cluster.placement_of(holder).extended))
    return [(name, amount + held[name]) for name, amount in request.extended]


def serves(device, free, request):
    asked = request.models
    usable = {Health.HEALTHY} if request.healthy_only else {Health.HEALTHY, Health.DEGRADED}
    if device.health not in usable or device.resource != request.resource:
        return False
    is_asked = not asked or any(matches_model(m, device.model, device.memory) for m in asked)
    if device.memory < request.min_memory or not is_asked:
        return False
    if request.slices:
        return device.profile == request.slices.profile
    if request.share is None:
        return free.milli == 1000 and not device.profile
    if device.profile:
        return False
    return free.milli >= request.share.milli and free.memory >= request.share.memory


def shares_of(cluster, name, device):
    held = cluster.holders_of(node=name, uuid=device.uuid)
    grants = [g for h in held for g in cluster.placement_of(h).devices]
    return sum(g.uuid == device.uuid and g.milli < 1000 for g in grants)


def linked(devices):
    cliques = {device.clique for device in devices}
    return len(cliques) == 1 and None not in cliques


def gang_fits(cluster, asked, placed=()):
    """Try every node and every set of devices for each worker in turn.

    `placed`: the role, the node and the cliques of each worker that is placed.
    """
    if len(placed) == asked.workers:
        return True
    role = list(asked.role_of_each_worker())[len(placed)]
    own = [each for each in placed if each[0] == role.name]
    for here in cluster.nodes():
        limited = ((asked.spread, placed), (role.spread, own))
        if any(_is_closed(here, spread, {node for _, node, _ in of}) for spread, of in limited):
            continue
        for devices in choices(cluster, role.request, here):
            touched = {clique_of(here, device) for device in devices}
            if any(
                spread.same_clique and len(touched.union(*(c for _, _, c in of))) > 1
                for spread, of in limited
            ):
                continue
            fork = cluster.fork()
            fork.take(Holder(f"w{len(placed)}"), placement(here, devices, role.request))
            if gang_fits(fork, asked, (*placed, (role.name, here.name, touched))):
                return True
    return False


def _is_closed(here, spread, used):
    crowded = spread.one_worker_per_node and here.name in used
    return crowded or len(used | {here.name}) > (spread.max_nodes or 99)


def clique_of(here, device):
    """A GPU without NVLink is a clique of its own."""
    return (here.name, device.uuid if device.clique is None else device.clique)


def greedy_fits(cluster, asked, policies):
    """Return whether placing the workers one by one by one of these policies succeeds."""
    return any(_greedy(cluster.fork(), asked, policy) for policy in policies)


def _greedy(cluster, asked, policy):
    used, touched = set(), set()
    for index in range(asked.workers):
        answer = decide(
            cluster, asked.roles[0].request, policy, candidates=_open_to(cluster, asked, used)
        )
        if isinstance(answer, Refusal):
            return False
        cluster.take(Holder(f"greedy {index}"), answer)
        used.add(answer.node)
        here = cluster.node(answer.node)
        granted = {grant.uuid for grant in answer.devices}
        touched |= {clique_of(here, d) for d in here.devices if d.uuid in granted}
    return not asked.spread.same_clique or len(touched) == 1


def _open_to(cluster, asked, used):
    names = [each.name for each in cluster.nodes()]
    if asked.spread.one_worker_per_node:
        return [name for name in names if name not in used]
    if asked.spread.node_limit is not None and len(used) == asked.spread.node_limit:
        return sorted(used)
    return names


def best_cost(columns, gpus, cliques, numa):
    """Return what devices.py promises of whole GPUs, over every set: the smaller the better."""
    return min(cost_of(chosen, columns, cliques, numa) for chosen in combinations(columns, gpus))


def cost_of(chosen, columns, cliques, numa):
    """Cliques touched, sizes of those left (largest first, negated), NUMA nodes touched."""
    touched = {cliques[c] if cliques[c] is not None else f"lone {c}" for c in chosen}
    left = Counter(
        cliques[c] if cliques[c] is not None else f"lone {c}" for c in columns if c not in chosen
    )
    sizes = sorted(left.values(), reverse=True)
    return len(touched), [-size for size in sizes], len({numa[c] for c in chosen})


def placement(here, devices, request):
    part = request.share
    milli = part.milli if part else 1000
    grants = tuple(Grant(d.uuid, milli, part.memory if part else d.memory) for d in devices)
    return Placement(here.name, grants, request.cpu, request.memory, extended=request.extended)
