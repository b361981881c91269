# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's placement rules for MIG: the memory slots of a profile, and where it may begin.

A GPU has 8 memory slots (an A30 has 4). A profile takes several in a row and may begin only at some
of them, so the free slots can be enough in number and still hold no slice.

Profiles are those of NVIDIA's MIG User Guide, «Supported MIG Profiles»
(docs.nvidia.com/datacenter/tesla/mig-user-guide). Slots are those that `nvidia-smi mig -lgipp`
prints there for an A100-SXM4-40GB («Getting Started with MIG»). GPUs of 8 slots are assumed to be
alike; the slots of an A30 follow from its number of each profile.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from gpupack_devices.errors import InvalidInventory
from gpupack_devices.units import MiB

_MIB_PER_GIB: Final = 1024
_NEAR: Final = 0.05
"""Relative tolerance: a driver reports up to a twentieth less memory than the data sheet."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A MIG profile.

    `size`: memory slots that it takes; `starts`: slots at which it may begin. `most`: maximum
    number on one GPU; media engines are for one slice alone.
    """

    size: int
    starts: tuple[int, ...]
    most: int = 8


@dataclass(frozen=True, slots=True)
class Family:
    """GPUs of one memory size. `gigabytes` is the data sheet's."""

    gigabytes: int
    slots: int
    profiles: Mapping[str, Profile]


@dataclass(frozen=True, slots=True)
class Slot:
    """The position of one slice on a GPU."""

    profile: str
    start: int
    size: int


_ANYWHERE: Final = Profile(1, (0, 1, 2, 3, 4, 5, 6))
_WITH_MEDIA: Final = Profile(1, (0, 1, 2, 3, 4, 5, 6), most=1)
_PAIRS: Final = Profile(2, (0, 2, 4, 6))
_COMPUTE_PAIRS: Final = Profile(2, (0, 2, 4))
_HALVES: Final = Profile(4, (0, 4))
_FIRST_HALF: Final = Profile(4, (0,))
_WHOLE: Final = Profile(8, (0,))


def _of_eight(gigabytes: int, *sizes: int) -> Family:
    """Return the family; `sizes`: gigabytes in the names for one slot, two, four and all."""
    one, two, half, whole = sizes
    return Family(
        gigabytes,
        8,
        {
            f"1g.{one}gb": _ANYWHERE,
            f"1g.{one}gb+me": _WITH_MEDIA,
            f"1g.{two}gb": _PAIRS,
            f"2g.{two}gb": _COMPUTE_PAIRS,
            f"3g.{half}gb": _HALVES,
            f"4g.{half}gb": _FIRST_HALF,
            f"7g.{whole}gb": _WHOLE,
        },
    )


FAMILIES: Final = (
    Family(
        24,
        4,
        {
            "1g.6gb": Profile(1, (0, 1, 2, 3)),
            "1g.6gb+me": Profile(1, (0, 1, 2, 3), most=1),
            "2g.12gb": Profile(2, (0, 2)),
            "2g.12gb+me": Profile(2, (0, 2), most=1),
            "4g.24gb": Profile(4, (0,)),
        },
    ),
    _of_eight(40, 5, 10, 20, 40),
    _of_eight(80, 10, 20, 40, 80),
    _of_eight(96, 12, 24, 48, 96),
    _of_eight(141, 18, 35, 71, 141),
)
"""A30; A100 40GB; A100 80GB, H100 80GB and H800; H100 96GB and GH200; H200."""


def family_of(memory: MiB) -> Family | None:
    """Return the family of GPUs with this memory, as a driver reports it; None: rules unknown."""
    gigabytes = memory / _MIB_PER_GIB
    near = (each for each in FAMILIES if abs(each.gigabytes - gigabytes) < _NEAR * each.gigabytes)
    return min(near, key=lambda each: abs(each.gigabytes - gigabytes), default=None)


def places(family: Family, profile: str, taken: Iterable[Slot]) -> tuple[int, ...]:
    """Return where a slice of the profile could begin, given the slices that are taken."""
    rule, taken = family.profiles.get(profile), tuple(taken)
    if rule is None or sum(each.profile == profile for each in taken) >= rule.most:
        return ()
    used = {slot for each in taken for slot in range(each.start, each.start + each.size)}
    return tuple(start for start in rule.starts if used.isdisjoint(range(start, start + rule.size)))


def layout(memory: MiB, profiles: Iterable[str]) -> tuple[Slot, ...]:
    """Cut a GPU into these slices, in this order, each at the first possible slot.

    Raises:
        InvalidInventory: no GPU of this size has such a profile, or it has no slot left for it.
    """
    family = family_of(memory)
    if family is None:
        raise InvalidInventory(f"no placement rules of MIG are known for a GPU of {memory} MiB")
    cut: list[Slot] = []
    for profile in profiles:
        if profile not in family.profiles:
            raise InvalidInventory(
                f"a GPU of {family.gigabytes} GB has no MIG profile {profile!r}; it has "
                f"{', '.join(family.profiles)}"
            )
        free = places(family, profile, cut)
        if not free:
            before = ", ".join(each.profile for each in cut)
            raise InvalidInventory(f"no slot is left for MIG profile {profile} next to {before}")
        cut.append(Slot(profile, free[0], family.profiles[profile].size))
    return tuple(cut)
