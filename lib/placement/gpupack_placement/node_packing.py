# SPDX-License-Identifier: Apache-2.0
"""The workers of several roles that one node takes together, with every choice of its devices.

A node is what the roles can see of it, so that equal nodes are packed once. A vector is a number of
workers of each role. Workers are placed one after another, role by role, in every way that leaves
something else free. So a vector that is found fits, and all of them are found unless the steps are
used up.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from gpupack_devices.units import WHOLE_GPU
from gpupack_placement.arrays import ABSENT
from gpupack_placement.request import Role

Vector = tuple[int, ...]
"""The number of workers of each role."""

_MAX_STATES: Final = 64
"""The maximum number of states of a node that are kept for one vector."""


class FreeDevice(NamedTuple):
    """A GPU or slice with what is free on it, as far as any role can tell the difference.

    `serves`: a bit for each role of which it could serve a worker alone. `group`: the group of the
    shares that the gang has on it; empty: it has none. `column` does not count when devices are
    compared.
    """

    serves: int
    milli: int
    memory: int
    shares: int
    clique: int
    group: tuple[str, ...] = ()
    column: int = ABSENT


Devices = tuple[FreeDevice, ...]


class FreeNode(NamedTuple):
    """A node with what is free on it; `extended`: the amounts of the names in Packing.extended.

    `serves`: a bit for each role that may use the node.
    """

    serves: int
    cpu: int
    memory: int
    pods: int
    extended: tuple[int, ...]
    devices: Devices


class Chosen(NamedTuple):
    """The devices of one worker of a role, and the workers that were placed before it."""

    role: int
    devices: Devices
    before: "Chosen | None"


class State(NamedTuple):
    """A node after the placement of workers; `last`: the last of them."""

    node: FreeNode
    last: Chosen | None = None


_States = dict[tuple[object, ...], State]
"""States by what is free; devices that are equal but for their columns are not distinguished."""


@dataclass(slots=True)
class Steps:
    """The number of steps that a search may still take."""

    left: int
    is_used_up: bool = False

    def take(self) -> bool:
        """Take one step; False: they are used up."""
        self.left -= 1
        self.is_used_up = self.is_used_up or self.left < 0
        return not self.is_used_up


class Packing:
    """Packs workers of these roles on nodes.

    `one_per_node`: a node takes one worker of all roles together. `same_clique`: the whole gang is
    in one NVLink clique, so a node takes all of it or nothing.
    """

    def __init__(
        self, roles: Sequence[Role], steps: Steps, *, one_per_node: bool, same_clique: bool
    ) -> None:
        self.roles, self._steps = roles, steps
        self._one_per_node, self._same_clique = one_per_node, same_clique
        self.extended = tuple(sorted({name for role in roles for name, _ in role.request.extended}))
        self._amounts = [
            tuple(dict(role.request.extended).get(name, 0) for name in self.extended)
            for role in roles
        ]
        self.all_workers: Vector = tuple(role.workers for role in roles)

    def vectors(self, node: FreeNode) -> list[Vector]:
        """Return what the node takes, without vectors that a larger one includes."""
        if self._same_clique:
            return [self.all_workers] if self._in_one_clique(node) else []
        found: dict[Vector, _States] = {(0,) * len(self.roles): {_key(node): State(node)}}
        for number, role in enumerate(self.roles):
            layer = found
            for _ in range(1 if role.spread.one_worker_per_node else role.workers):
                layer = self._larger(layer, number)
                if not layer:
                    break
                found = found | layer
        return [v for v in found if any(v) and self._is_maximal(v, found)]

    def devices(self, node: FreeNode, vector: Vector) -> list[list[Devices]] | None:
        """Return the devices of each worker by role; None: the steps are used up."""
        state = self._in_one_clique(node) if self._same_clique else self._first(node, vector)
        if state is None:
            return None
        by_role: list[list[Devices]] = [[] for _ in self.roles]
        chosen = state.last
        while chosen is not None:
            by_role[chosen.role].append(chosen.devices)
            chosen = chosen.before
        return by_role

    def _larger(self, layer: dict[Vector, _States], number: int) -> dict[Vector, _States]:
        """Return the vectors with one more worker of the role, or with all of a clique's."""
        larger: dict[Vector, _States] = {}
        added = self._added(number)
        for vector, states in layer.items():
            if self._one_per_node and any(vector):
                continue
            if vector[number] + added <= self.roles[number].workers:
                after = self._with_one_more(states.values(), number)
                if after:
                    larger[_plus(vector, number, added)] = after
        return larger

    def _added(self, number: int) -> int:
        role = self.roles[number]
        return role.workers if role.spread.same_clique else 1

    def _is_maximal(self, vector: Vector, found: dict[Vector, _States]) -> bool:
        """Tell whether no larger vector uses the node for the same roles with a node limit."""
        return not any(
            _plus(vector, number, self._added(number)) in found
            for number, role in enumerate(self.roles)
            if vector[number] or role.spread.max_nodes is None
        )

    def _first(self, node: FreeNode, vector: Vector) -> State | None:
        """Return a state after the placement of these workers."""
        states: _States = {_key(node): State(node)}
        for number, count in enumerate(vector):
            for _ in range(count // self._added(number)):
                states = self._with_one_more(states.values(), number)
        return next(iter(states.values()), None)

    def _with_one_more(self, states: Iterable[State], number: int) -> _States:
        """Return the states after one more worker, or after all workers of one clique."""
        found: _States = {}
        is_clique = self.roles[number].spread.same_clique
        for state in states:
            for after in self._clique(state, number) if is_clique else self._one(state, number):
                if not self._steps.take():
                    return found
                found.setdefault(_key(after.node), after)
            if len(found) >= _MAX_STATES:
                self._steps.is_used_up = True
                break
        return found

    def _clique(self, state: State, number: int) -> Iterator[State]:
        """Yield the states after all workers of the role were placed in one clique."""
        for inside, outside in _cliques(state.node.devices):
            for after in self._several(state, inside, [number] * self.roles[number].workers):
                devices = (*after.node.devices, *outside)
                yield State(after.node._replace(devices=devices), after.last)

    def _in_one_clique(self, node: FreeNode) -> State | None:
        """Return a state after the whole gang was placed in one clique."""
        workers = [n for n, role in enumerate(self.roles) for _ in range(role.workers)]
        cliques = _cliques(node.devices)
        found = (self._several(State(node), inside, workers) for inside, _ in cliques)
        return next((states[0] for states in found if states), None)

    def _several(self, state: State, devices: Devices, workers: Sequence[int]) -> list[State]:
        """Return the states after these workers were placed on these devices."""
        start = State(state.node._replace(devices=devices), state.last)
        states: _States = {_key(start.node): start}
        for number in workers:
            larger: _States = {}
            for each in states.values():
                for after in self._one(each, number):
                    if not self._steps.take():
                        return []
                    larger.setdefault(_key(after.node), after)
            states = larger
        return list(states.values())

    def _one(self, state: State, number: int) -> Iterator[State]:
        """Yield the states after one more worker."""
        node, request = state.node, self.roles[number].request
        if not node.serves >> number & 1 or node.pods < 1:
            return
        cpu, memory = node.cpu - request.cpu, node.memory - request.memory
        amounts = zip(node.extended, self._amounts[number], strict=True)
        extended = tuple([free - amount for free, amount in amounts])
        if min(cpu, memory, *extended) < 0:
            return
        for chosen, left in _choices(node.devices, self.roles[number], number):
            after = FreeNode(node.serves, cpu, memory, node.pods - 1, extended, left)
            yield State(after, Chosen(number, chosen, state.last))


def _choices(devices: Devices, role: Role, number: int) -> Iterator[tuple[Devices, Devices]]:
    """Yield the devices of one worker, and all devices as they are then; equal choices come once.

    A whole GPU or slice is not among them any more.
    """
    request, serving = role.request, [d for d in devices if d.serves >> number & 1]
    if not request.devices:
        yield (), devices
        return
    if request.share is not None:
        share = request.share
        for device in _distinct(serving):
            fits = device.milli >= share.milli and device.memory >= share.memory
            if fits and device.shares and device.group in {(), (share.group,)}:
                after = device._replace(
                    milli=device.milli - share.milli,
                    memory=device.memory - share.memory,
                    shares=device.shares - 1,
                    group=(share.group,),
                )
                yield (device,), (*_without(devices, (device,)), after)
        return
    idle = [d for d in serving if request.slices or d.milli == WHOLE_GPU]
    pools = [idle]
    if request.needs_clique:
        numbers = sorted({d.clique for d in idle} - {ABSENT})
        pools = [[d for d in idle if d.clique == clique] for clique in numbers]
    for pool in pools:
        for chosen in _picks(_alike(pool), request.devices):
            yield chosen, _without(devices, chosen)


def _picks(groups: Sequence[Devices], number: int) -> Iterator[Devices]:
    """Yield each choice of so many devices; devices of one group are alike."""
    if not number:
        yield ()
        return
    if sum(map(len, groups)) < number:
        return
    first, *rest = groups
    for count in range(min(len(first), number), -1, -1):
        for others in _picks(rest, number - count):
            yield (*first[:count], *others)


def _alike(devices: Iterable[FreeDevice]) -> list[Devices]:
    groups: dict[tuple[object, ...], list[FreeDevice]] = {}
    for device in devices:
        groups.setdefault(device[:-1], []).append(device)
    return [tuple(group) for group in groups.values()]


def _distinct(devices: Iterable[FreeDevice]) -> list[FreeDevice]:
    return [group[0] for group in _alike(devices)]


def _without(devices: Devices, chosen: Devices) -> Devices:
    left = list(devices)
    for device in chosen:
        left.remove(device)
    return tuple(left)


def _cliques(devices: Devices) -> Iterator[tuple[Devices, Devices]]:
    """Yield the devices of each clique, and the others; a device without NVLink is a clique."""
    for clique in sorted({d.clique for d in devices} - {ABSENT}):
        inside = tuple([d for d in devices if d.clique == clique])
        yield inside, tuple([d for d in devices if d.clique != clique])
    for device in _distinct(d for d in devices if d.clique == ABSENT):
        yield (device,), _without(devices, (device,))


def _key(node: FreeNode) -> tuple[object, ...]:
    return (*node[:-1], *sorted([device[:-1] for device in node.devices]))


def _plus(vector: Vector, number: int, added: int) -> Vector:
    return (*vector[:number], vector[number] + added, *vector[number + 1 :])
