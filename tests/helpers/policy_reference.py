# SPDX-License-Identifier: Apache-2.0
"""Every policy once more, in plain Python over one node at a time, from its definition alone."""

import math
from dataclasses import dataclass, replace

from placement_oracle import choices

from gpupack_placement import Health, matches_model

UNIT = 2**20


@dataclass
class Gpu:
    column: int
    model: str
    memory: int
    milli: int
    memory_left: int
    slots: int
    speed: int = 1000


@dataclass
class State:
    cpu: int
    ram: int
    gpus: list
    total_gpus: int
    order: int
    holders: list


def state(cluster, name, request=None):
    """Return the state of the GPUs that a request may take."""
    a, row, free = cluster.arrays, cluster.row(name), cluster.free_devices(name)
    devices = sorted(cluster.node(name).devices, key=lambda d: d.index)
    gpus = [
        Gpu(c, d.model, d.memory, f.milli, f.memory, int(a.free_shares[row, c]), d.speed)
        for c, (d, f) in enumerate(zip(devices, free, strict=True))
        if not d.profile and d.health is Health.HEALTHY and is_seen(d, request)
    ]
    held = [cluster.placement_of(holder).devices for holder in cluster.holders_on(name)]
    sizes = ["share" if d[0].milli < 1000 else min(len(d), 9) for d in held if d]
    cpu, ram = int(a.free_cpu[row]), int(a.free_ram[row])
    total = sum(not d.profile and is_seen(d, request) for d in devices)
    return State(cpu, ram, gpus, total, int(a.order[row]), sizes)


def is_seen(device, request):
    return request is None or not request.milli or device.resource == request.resource


def does(gpu, request):
    wanted = request.models
    if wanted and not any(matches_model(m, gpu.model, gpu.memory) for m in wanted):
        return False
    return gpu.memory >= request.min_memory


def with_room(here, request):
    """List the GPUs on which the share fits."""
    share = request.share
    return [
        g
        for g in here.gpus
        if does(g, request)
        and g.milli >= share.milli
        and g.memory_left >= share.memory
        and g.slots > 0
    ]


def fullest(here, request):
    return min(with_room(here, request), key=lambda g: (g.milli, g.memory_left, g.column))


def fragmentation(here, weights):
    """Compute F of the paper times the sum of the weights.

    GPUs that accept different requests count as separate nodes.
    """
    parts = {}
    for gpu in here.gpus:
        parts.setdefault(tuple(accepts(gpu, r) for r in weights if r.milli), []).append(gpu)
    return sum(
        weight * _unusable(part, here.cpu, request)
        for request, weight in weights.items()
        for part in parts.values()
    )


def accepts(gpu, request):
    return does(gpu, request) and (not request.share or request.share.memory <= gpu.memory)


def _unusable(gpus, cpu, request):
    free = sum(g.milli for g in gpus)
    if not request.milli or cpu < request.cpu or not accepts(gpus[0], request):
        return free
    each, number = (request.share.milli, 1) if request.share else (1000, request.gpus)
    if sum(g.milli >= each for g in gpus) < number:
        return free
    return sum(g.milli for g in gpus if g.milli < each)


def whole_weights(mix):
    total = sum(demand.weight for demand in mix.demands)
    return {d.request: max(1, round(d.weight / total * UNIT)) for d in mix.demands}


def after(here, request, gpus):
    """The state with these GPUs taken."""
    taken = {g.column for g in gpus}
    part = request.share.milli if request.share else 1000
    left = [replace(g, milli=g.milli - part * (g.column in taken)) for g in here.gpus]
    return replace(here, cpu=here.cpu - request.cpu, gpus=left)


def fgd(here, request, mix):
    """Score and, for a share, its GPU."""
    weights = whole_weights(mix)
    if request.share:
        scored = [(_fgd(here, request, [g], weights), g) for g in with_room(here, request)]
        return max(scored, key=lambda one: one[0])
    idle = [g for g in here.gpus if does(g, request) and g.milli == 1000]
    return _fgd(here, request, idle[: request.gpus or 0], weights), None


def _fgd(here, request, gpus, weights):
    before = fragmentation(here, weights)
    change = before - fragmentation(after(here, request, gpus), weights)
    return math.floor(100 / (1 + math.exp(-change / (1000 * sum(weights.values())))))


def best_fit(here, request):
    cpu = (here.cpu - request.cpu) / 128_000
    gpu = (sum(g.milli for g in here.gpus) - request.milli) / 8000
    return math.floor(100.0 * (1.0 - 0.5 * cpu - 0.5 * gpu))


def worst_fit(here, request):
    free = sum(g.milli for g in here.gpus)
    return here.cpu - request.cpu + 100 * (free - request.milli)


def dot_product(here, request):
    cpu = here.cpu / 128_000 * (request.cpu / 128_000)
    gpu = sum(g.milli for g in here.gpus) / 8000 * (request.milli / 8000)
    return math.floor(100.0 * (1.0 - (cpu + gpu) / 2))


def gpu_clustering(here, request):
    if not request.milli:
        return 0
    size = "share" if request.share else min(request.gpus, 9)
    base = 25 if not here.holders else 0
    if size in here.holders:
        base = 75 if len(set(here.holders)) == 1 else 50
    return base + 25 * (8000 - sum(g.milli for g in here.gpus)) // 8000


def gpu_packing(here, request):
    if not request.milli:
        return 0
    idle = sum(g.milli == 1000 for g in here.gpus)
    if idle == here.total_gpus:
        return max(here.total_gpus, 33 - here.total_gpus)
    if request.share and (gpu := fullest(here, request)).milli < 1000:
        return max(50, 100 - gpu.milli // 100)
    return max(33, 50 - (request.gpus or 1))


def pace(here, request):
    if not request.gpus:
        return 0
    idle = (g for g in here.gpus if does(g, request) and g.milli == 1000)
    fastest_first = sorted((g.speed for g in idle), reverse=True)
    return 2 * fastest_first[request.gpus - 1] - fastest_first[-1]


FORMULAS = {
    "best-fit": best_fit,
    "dot-product": dot_product,
    "first-fit": lambda here, request: 0,
    "gpu-clustering": gpu_clustering,
    "gpu-packing": gpu_packing,
    "pace": pace,
    "worst-fit": worst_fit,
}


def best_node(cluster, request, score):
    """The node of the largest score, of equals the first in the cluster's order; None: none."""
    able = [n.name for n in cluster.nodes() if choices(cluster, request, n)]
    states = {name: state(cluster, name, request) for name in able}
    scores = {name: score(here, request) for name, here in states.items()}
    best = min(able, key=lambda name: (-scores[name], states[name].order), default=None)
    return best, scores
