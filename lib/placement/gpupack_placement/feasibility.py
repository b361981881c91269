# SPDX-License-Identifier: Apache-2.0
"""The number of workers of a request that each node can take, and why a node takes none.

decide and plan_gang rest on one pass, `worker_slots`: for each node, how many workers fit together
now. Workers of a gang are identical, so the count is exact: whole GPUs by division (within each
NVLink clique if one is requested), MIG slices likewise, shares by division on each device.
`reasons` checks the same conditions from the most to the least lasting and gives every other node
the first that fails; it runs only for a refusal.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpupack_devices.units import WHOLE_GPU
from gpupack_placement.arrays import ABSENT, Arrays, BoolArray, IntArray, takes_work
from gpupack_placement.cluster import Cluster
from gpupack_placement.masks import kinds_mask, models_mask
from gpupack_placement.memo import ALL, Rows
from gpupack_placement.model import Health
from gpupack_placement.reasons import Reason
from gpupack_placement.request import REPLICA, Request, Share, Slices
from gpupack_placement.serving import joinable_devices, serving_devices, serving_nodes

UNLIMITED = np.int64(1 << 30)
"""Slots of a node for workers that request nothing of it."""


@dataclass(frozen=True, slots=True)
class Check:
    """The rows that fail for a reason.

    `nearest`: how much of the checked amount each row has. `of_each`: the same for each of the
    request's extended resources; for a share the free memory on GPUs with enough percent free.
    """

    reason: Reason
    fails: BoolArray
    nearest: IntArray | None = None
    of_each: tuple[IntArray, ...] = ()


def worker_slots(cluster: Cluster, request: Request, *, same_clique: bool = False) -> IntArray:
    """Return the number of workers that fit now, per row.

    `same_clique`: all workers are on GPUs of one NVLink clique. The answer must not be changed. It
    is remembered for each kind of request, without its selector and without tolerations that make
    no difference here. It is computed again for the rows that have changed.
    """
    anywhere = request if request.selector is None else replace(request, selector=None)
    kind = replace(request, selector=None, tolerations=()) if _has_rules(request) else request
    slots = cluster.room.of(
        (kind, cluster.taint_sets.open_to(request.tolerations).sets, same_clique),
        cluster.arrays.version,
        lambda rows: _slots(cluster, anywhere, rows, same_clique=same_clique),
    )
    return slots if request.selector is None else slots * _selected(cluster, request)


def _has_rules(request: Request) -> bool:
    return request.selector is not None or bool(request.tolerations)


def fresh_slots(cluster: Cluster, request: Request, *, same_clique: bool = False) -> IntArray:
    """Return worker_slots for a request that is checked only once; the answer is not remembered."""
    slots = _slots(cluster, request, ALL, same_clique=same_clique)
    return slots * _selected(cluster, request)


def _slots(cluster: Cluster, request: Request, at: Rows, *, same_clique: bool) -> IntArray:
    a = cluster.arrays
    eligible = eligible_devices(cluster, request, at=at)
    count = _one_clique_slots if same_clique else _device_slots
    slots = count(a, request, eligible, at)
    slots = np.minimum(slots, _quotient(a.free_cpu[at], request.cpu))
    slots = np.minimum(slots, _quotient(a.free_ram[at], request.memory))
    slots = np.minimum(slots, a.free_pods[at])
    for name, amount in request.extended:
        slots = np.minimum(slots, a.extended.free(name, at, like=a.pods) // amount)
    return slots * _open(cluster, request, at)


def eligible_devices(
    cluster: Cluster, request: Request, *, at: int | Rows = ALL
) -> BoolArray | None:
    """Return the devices of a requested model, size and MIG profile, free or not; None: all GPUs.

    For a limited share the devices must be able to limit it, and for any share no other group may
    have shares of them. If healthy devices are requested, only those count. Devices are
    distinguished by resource name only on nodes that have any of the requested one. `at`: the rows;
    for one row the answer is a vector over the devices of its node.
    """
    eligible = _of_kind(cluster, request, at)
    joinable = joinable_devices(cluster, request, at)
    if eligible is None or joinable is None:
        return joinable if eligible is None else eligible
    return eligible & joinable


def _of_kind(cluster: Cluster, request: Request, at: int | Rows = ALL) -> BoolArray | None:
    """Return eligible_devices without regard to groups of shares."""
    a, eligible = cluster.arrays, serving_devices(cluster, request, at)
    if request.slices is not None:
        of_profile = _of_requested_profile(cluster, request.slices)[a.profile[at]]
        eligible = of_profile if eligible is None else eligible & of_profile
    if request.models:
        of_model = _of_requested_model(cluster, request, at)
        eligible = of_model if eligible is None else eligible & of_model
    if request.min_memory:
        large = a.memory[at] >= request.min_memory
        eligible = large if eligible is None else eligible & large
    if request.share is not None and request.share.limited:
        eligible = a.limits[at] if eligible is None else eligible & a.limits[at]
    if request.healthy_only:
        sound = a.health[at] == Health.HEALTHY
        eligible = sound if eligible is None else eligible & sound
    return eligible


def _of_requested_model(cluster: Cluster, request: Request, at: int | Rows = ALL) -> BoolArray:
    """Return the GPUs, or slices if these are requested, of a requested model.

    The name of a slice's model is that of the GPU that it is cut from; its memory is its own.
    """
    a = cluster.arrays
    # The last truth value stands for ABSENT.
    if request.slices is not None:
        by_name = models_mask(request.models, cluster.model_names)
        return np.append(by_name, False)[a.model[at]]
    return np.append(kinds_mask(request.models, a.kinds), False)[a.kind[at]]


def _of_requested_profile(cluster: Cluster, slices: Slices) -> BoolArray:
    """Return one truth value per profile number; the last one stands for ABSENT."""
    return np.append(cluster.profiles.where(lambda profile: profile == slices.profile), False)


def idle_devices(cluster: Cluster, request: Request) -> IntArray:
    """Return the number of idle eligible devices per row; 0 on nodes closed to the request."""
    idle = idle_of(cluster.arrays, request, eligible_devices(cluster, request))
    return _per_node(idle) * _open(cluster, request) * _selected(cluster, request)


def usable(cluster: Cluster, request: Request) -> BoolArray:
    """Return the rows that the request may use, even if nothing is free there."""
    return _open(cluster, request) & _selected(cluster, request)


def has_extended(cluster: Cluster, request: Request) -> BoolArray:
    """Return the rows with enough free of the request's extended resources."""
    a = cluster.arrays
    enough = [a.extended.free(name, ALL, like=a.pods) >= n for name, n in request.extended]
    found: BoolArray = np.logical_and.reduce([a.present, *enough])
    return found


def device_slots(cluster: Cluster, request: Request, at: Rows) -> IntArray:
    """Return how many workers fit together by their devices, without regard to CPU and memory."""
    eligible = eligible_devices(cluster, request, at=at)
    return _device_slots(cluster.arrays, request, eligible, at)


def reasons(cluster: Cluster, request: Request) -> list[Check]:
    """Return the checks in a fixed order; a node's reason is the first check that it fails."""
    parts = (_node_checks, _gpu_checks, _extended_checks, _usage_checks)
    return [check for part in parts for check in part(cluster, request)]


def _open(cluster: Cluster, request: Request, at: Rows = ALL) -> BoolArray:
    """Return the rows that are open to the request, without regard to its selector."""
    a = cluster.arrays
    is_open: BoolArray = a.ready[at] & ~a.cordoned[at]
    return is_open & _tolerated(cluster, request, at) & serving_nodes(cluster, request, at)


def _tolerated(cluster: Cluster, request: Request, at: Rows = ALL) -> BoolArray:
    if cluster.taint_sets.in_use == {()}:
        return cluster.arrays.present[at]
    mask = cluster.taint_sets.open_to(request.tolerations).mask
    return mask[cluster.arrays.taints[at]] if len(mask) else cluster.arrays.present[at]


def _selected(cluster: Cluster, request: Request) -> BoolArray:
    if request.selector is None:
        return cluster.arrays.present
    return cluster.selectors.of(request.selector, cluster.row_nodes)


def _device_slots(
    a: Arrays, request: Request, eligible: BoolArray | None, at: Rows = ALL
) -> IntArray:
    if not request.devices:
        return np.full(len(a.gpus[at]), UNLIMITED)
    units = units_of(a, request, eligible, at=at)
    if request.needs_clique:
        return _clique_slots(a, units, request.devices, at)
    return _per_node(units) // request.devices


def _one_clique_slots(
    a: Arrays, request: Request, eligible: BoolArray | None, at: Rows
) -> IntArray:
    units, in_clique = units_of(a, request, eligible, at=at), a.clique[at]
    unlinked = units * (in_clique == ABSENT)
    most: IntArray = unlinked.max(axis=1, initial=0) // request.devices
    for clique in _cliques(a):
        most = np.maximum(most, _per_node(units * (in_clique == clique)) // request.devices)
    return most


def units_of(
    a: Arrays, request: Request, eligible: BoolArray | None, *, at: int | Rows = ALL
) -> IntArray | BoolArray:
    """Return, per device, how many shares fit on it, or whether it is idle.

    A worker needs as many units as the request has devices. `at` as in eligible_devices.
    """
    if request.share is None:
        return idle_of(a, request, eligible, at=at)
    parts = a.free_milli[at] // request.share.milli
    if request.share.memory:
        parts = np.minimum(parts, a.free_memory[at] // request.share.memory)
    parts = np.minimum(parts, a.free_shares[at])
    return parts if eligible is None else parts * eligible


def _fits(a: Arrays, share: Share, eligible: BoolArray | None) -> BoolArray:
    """Return the devices with enough free percent and memory for a share; slots do not count."""
    fits: BoolArray = (a.free_milli >= share.milli) & (a.free_memory >= share.memory)
    return fits if eligible is None else fits & eligible


def idle_of(
    a: Arrays, request: Request, eligible: BoolArray | None, *, at: int | Rows = ALL
) -> BoolArray:
    """Return the GPUs, or slices if these are requested, of which nothing is used."""
    idle: BoolArray
    if request.slices is None:
        idle = a.free_milli[at] == WHOLE_GPU
    else:
        idle = takes_work(a.health[at]) & (a.used_milli[at] == 0)
    return idle if eligible is None else idle & eligible


def _clique_slots(a: Arrays, units: IntArray | BoolArray, gpus: int, at: Rows = ALL) -> IntArray:
    slots = np.zeros(len(units), np.int64)
    for clique in _cliques(a):
        slots += _per_node(units * (a.clique[at] == clique)) // gpus
    return slots


def _cliques(a: Arrays) -> range:
    return range(int(a.clique.max(initial=ABSENT)) + 1)


def _node_checks(cluster: Cluster, request: Request) -> Iterator[Check]:
    a = cluster.arrays
    yield Check(Reason.NODE_NOT_READY, ~a.ready)
    yield Check(Reason.NODE_CORDONED, a.cordoned)
    yield Check(Reason.TAINT_NOT_TOLERATED, ~_tolerated(cluster, request))
    yield Check(Reason.SELECTOR_MISMATCH, ~_selected(cluster, request))


def _gpu_checks(cluster: Cluster, request: Request) -> Iterator[Check]:
    """Yield checks that waiting does not change: devices are missing or have failed."""
    if not request.needs_gpu:
        return
    a, needed = cluster.arrays, request.devices
    yield Check(Reason.NO_GPUS, _is_absent(a.health != ABSENT))
    yield Check(Reason.RESOURCE_NAME_MISMATCH, ~serving_nodes(cluster, request))
    here: BoolArray = a.capacity > 0
    lacks, lacking = Reason.ONLY_MIG_SLICES, a.gpus == 0
    if request.slices is not None:
        here = _of_requested_profile(cluster, request.slices)[a.profile]
        lacks, lacking = Reason.MIG_PROFILE_MISMATCH, _is_absent(here)
    serving = serving_devices(cluster, request)
    if serving is not None:
        here = here & serving
        lacking = _is_absent(here)
    if request.slices is None:
        replicas = _of_requested_profile(cluster, Slices(REPLICA))[a.profile]
        shared = replicas if serving is None else replicas & serving
        yield Check(Reason.ONLY_REPLICAS, lacking & ~_is_absent(shared))
    yield Check(lacks, lacking)
    if request.models:
        here = here & _of_requested_model(cluster, request)
        yield Check(Reason.MODEL_MISMATCH, _is_absent(here))
    if request.share is not None and request.share.limited:
        here = here & a.limits
        yield Check(Reason.NO_LIMITED_SHARES, _is_absent(here))
    least = max(request.min_memory, request.share.memory if request.share else 0)
    largest = (a.memory * here).max(axis=1, initial=0)
    here = here & (a.memory >= least)
    yield Check(Reason.GPU_MEMORY_TOO_SMALL, _is_absent(here), largest)
    yield Check(Reason.TOO_FEW_GPUS, _per_node(here) < needed, _per_node(here))
    if request.needs_clique:
        yield Check(Reason.NO_NVLINK_CLIQUE, _clique_slots(a, here, needed) < 1)
    taking = takes_work(a.health)
    works = taking | (a.health == Health.MAINTENANCE)
    yield _too_few(a, request, here & works, Reason.GPU_FAILED)
    yield _too_few(a, request, here & taking, Reason.GPU_IN_MAINTENANCE)


def _extended_checks(cluster: Cluster, request: Request) -> Iterator[Check]:
    """Yield the check of the other resources that the node must have."""
    if request.extended:
        a = cluster.arrays
        offered = [a.extended.offers(name, ALL, like=a.pods) for name, _ in request.extended]
        yield _lacking(Reason.NO_SUCH_RESOURCE, request, offered)


def _lacking(reason: Reason, request: Request, there: Sequence[IntArray]) -> Check:
    """Return the check that a row has too little of a resource; `there`: the amounts, by row."""
    pairs = zip(request.extended, there, strict=True)
    fails = np.logical_or.reduce([have < amount for (_, amount), have in pairs])
    return Check(reason, fails, of_each=tuple(there))


def _too_few(a: Arrays, request: Request, devices: BoolArray, reason: Reason) -> Check:
    """Return the check that these devices do not suffice for a worker, free or not."""
    count, needed = _per_node(devices), request.devices
    slots = _clique_slots(a, devices, needed) if request.needs_clique else count // needed
    return Check(reason, slots < 1, count)


def _usage_checks(cluster: Cluster, request: Request) -> Iterator[Check]:
    """Yield checks of what the present holders use."""
    a, eligible = cluster.arrays, eligible_devices(cluster, request)
    if request.share is not None:
        alike = _of_kind(cluster, request)
        most = a.free_milli if alike is None else a.free_milli * alike
        fitting = _fits(a, request.share, alike)
        free_memory = np.where(most >= request.share.milli, a.free_memory, 0).max(axis=1, initial=0)
        percent = most.max(axis=1, initial=0)
        yield Check(Reason.SHARE_DOES_NOT_FIT, _is_absent(fitting), percent, (free_memory,))
        fitting = fitting if eligible is None else fitting & eligible
        yield Check(Reason.SHARED_BY_OTHERS, _is_absent(fitting))
        yield Check(Reason.TOO_MANY_SHARES, _is_absent(fitting & (a.free_shares > 0)))
    elif request.devices:
        idle = _per_node(idle_of(a, request, eligible))
        slots = _device_slots(a, request, eligible)
        few = _too_few_free(request)
        yield Check(few, idle < request.devices, idle)
        yield Check(Reason.NVLINK_CLIQUE_BUSY, slots < 1)
    yield Check(Reason.INSUFFICIENT_CPU, a.free_cpu < request.cpu, a.free_cpu)
    yield Check(Reason.INSUFFICIENT_MEMORY, a.free_ram < request.memory, a.free_ram)
    if request.extended:
        free = [a.extended.free(name, ALL, like=a.pods) for name, _ in request.extended]
        yield _lacking(Reason.INSUFFICIENT_RESOURCE, request, free)
    yield Check(Reason.TOO_MANY_PODS, a.free_pods < 1, a.pods)


def _too_few_free(request: Request) -> Reason:
    if request.slices is None:
        return Reason.TOO_FEW_FREE_GPUS
    is_replica = request.slices.profile == REPLICA
    return Reason.TOO_FEW_FREE_REPLICAS if is_replica else Reason.TOO_FEW_FREE_MIG_SLICES


def _quotient(free: IntArray, asked: int) -> IntArray:
    return free // asked if asked else np.full(len(free), UNLIMITED)


def _is_absent(per_device: BoolArray) -> BoolArray:
    none: BoolArray = _per_node(per_device) == 0
    return none


def _per_node(per_device: BoolArray | IntArray) -> IntArray:
    total: IntArray = np.add.reduce(per_device, axis=1, dtype=np.int64)
    return total
