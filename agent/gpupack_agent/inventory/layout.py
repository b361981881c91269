# SPDX-License-Identifier: Apache-2.0
"""The places of a MIG layout's slices on a GPU.

A profile takes a number of consecutive memory slots and may start at some slots only. If slices are
requested one by one, the driver chooses their places, and may leave no place for the last one.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

from gpupack_agent.errors import LayoutInvalid


@dataclasses.dataclass(frozen=True, slots=True)
class Profile:
    """A MIG profile of a GPU, as the driver describes it.

    Attributes:
        number: the driver's number of the profile.
        size: number of memory slots of a slice.
        starts: slots at which a slice may start.
        max_count: the largest number of such slices on one GPU.
    """

    number: int
    size: int
    starts: tuple[int, ...]
    max_count: int


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """The place of one slice; `start` and `size` count memory slots."""

    profile: str
    start: int
    size: int


@dataclasses.dataclass(frozen=True, slots=True)
class MigGpu:
    """A GPU in MIG mode, and its possible profiles, by name."""

    uuid: str
    profiles: Mapping[str, Profile]


def place_slices(profiles: Mapping[str, Profile], wanted: Sequence[str]) -> tuple[Place, ...]:
    """Find a place for each slice, independent of their order.

    Args:
        profiles: the GPU's possible profiles, by name.
        wanted: a profile for each slice.

    Raises:
        LayoutInvalid: the GPU has no such profile, or not enough slots for all slices.
    """
    for name, number in Counter(wanted).items():
        if name not in profiles:
            raise LayoutInvalid(
                f"the GPU has no MIG profile {name}; it has {', '.join(profiles) or 'none'}"
            )
        if number > profiles[name].max_count:
            raise LayoutInvalid(
                f"{number} slices {name} are requested; the maximum is {profiles[name].max_count}"
            )
    # The largest slices have the fewest places.
    ordered = sorted(wanted, key=lambda name: (-profiles[name].size, profiles[name].starts))
    found = _search_places(profiles, ordered, frozenset())
    if found is None:
        raise LayoutInvalid(f"the GPU has too few memory slots for {', '.join(wanted)} together")
    return found


def _search_places(
    profiles: Mapping[str, Profile], wanted: Sequence[str], taken: frozenset[int]
) -> tuple[Place, ...] | None:
    """Search the places by backtracking, which is fast: there are at most eight slots."""
    if not wanted:
        return ()
    name, rest = wanted[0], wanted[1:]
    rule = profiles[name]
    for start in rule.starts:
        slots = frozenset(range(start, start + rule.size))
        if slots & taken:
            continue
        others = _search_places(profiles, rest, taken | slots)
        if others is not None:
            return (Place(name, start, rule.size), *others)
    return None
