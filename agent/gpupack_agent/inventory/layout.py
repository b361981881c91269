# SPDX-License-Identifier: Apache-2.0
"""Where on a GPU the slices of a MIG layout go.

A profile takes so many memory slots in a row and may begin at some of them only. A driver that is
asked for one slice after the other puts each where it likes, and may leave no place for the last.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

from gpupack_agent.errors import LayoutInvalid


@dataclasses.dataclass(frozen=True, slots=True)
class Profile:
    """What a GPU can be cut into, as the driver tells it.

    Attributes:
        number: by which the driver knows the profile.
        size: memory slots that a slice takes.
        starts: slots at which it may begin.
        most: how many of one GPU there can be.
    """

    number: int
    size: int
    starts: tuple[int, ...]
    most: int


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Of one slice; `start` and `size` count memory slots."""

    profile: str
    start: int
    size: int


@dataclasses.dataclass(frozen=True, slots=True)
class MigGpu:
    """A GPU in MIG mode, and what it can be cut into by the profiles' names."""

    uuid: str
    profiles: Mapping[str, Profile]


def plan(profiles: Mapping[str, Profile], wanted: Sequence[str]) -> tuple[Place, ...]:
    """Find a place for each slice, whatever their order.

    Args:
        profiles: what the GPU can be cut into.
        wanted: a profile for each slice.

    Raises:
        LayoutInvalid: the GPU has no such profile, or no room for all of them.
    """
    for name, number in Counter(wanted).items():
        if name not in profiles:
            raise LayoutInvalid(
                f"the GPU has no MIG profile {name}; it has {', '.join(profiles) or 'none'}"
            )
        if number > profiles[name].most:
            raise LayoutInvalid(
                f"{number} slices {name} are wanted; there can be {profiles[name].most}"
            )
    # The largest have the fewest places.
    ordered = sorted(wanted, key=lambda name: (-profiles[name].size, profiles[name].starts))
    found = _placed(profiles, ordered, frozenset())
    if found is None:
        raise LayoutInvalid(f"the GPU has no room for {', '.join(wanted)} together")
    return found


def _placed(
    profiles: Mapping[str, Profile], wanted: Sequence[str], taken: frozenset[int]
) -> tuple[Place, ...] | None:
    """By trying: there are eight slots at most."""
    if not wanted:
        return ()
    name, rest = wanted[0], wanted[1:]
    rule = profiles[name]
    for start in rule.starts:
        slots = frozenset(range(start, start + rule.size))
        if slots & taken:
            continue
        others = _placed(profiles, rest, taken | slots)
        if others is not None:
            return (Place(name, start, rule.size), *others)
    return None
