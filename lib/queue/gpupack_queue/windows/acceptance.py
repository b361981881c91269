# SPDX-License-Identifier: Apache-2.0
"""Which reservations stand: at any time a tenant reserves no more than its nominal quota.

    older reservations first ─► together within the nominal quota of the model? ─► it stands

So a reservation is never refused for a later one. If the quota shrinks, the latest are refused.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from gpupack_queue.charge import ANY, ModelKey
from gpupack_queue.job import ReservationId, Tenant
from gpupack_queue.quotas.tree import Tree
from gpupack_queue.windows.recurrence import Interval

MAX_PER_TENANT: Final = 16
"""The maximum number of reservations of one tenant that stand."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a reservation claims: milli-GPU of one model in each of its intervals.

    `declared`: its creation, in seconds since the epoch.
    """

    reservation: ReservationId
    tenant: Tenant
    model: str
    milli: int
    declared: float
    intervals: tuple[Interval, ...]


@dataclass(frozen=True, slots=True)
class Excess:
    """Why a reservation does not stand: at `at` its tenant reserves more than it is guaranteed.

    `others`: what its older reservations of the model have then. `is_too_many`: it has as many
    reservations as it may.
    """

    nominal: int
    others: int
    at: float
    is_too_many: bool = False


def refused(claims: Iterable[Claim], tree: Tree) -> Mapping[ReservationId, Excess]:
    """Return the reservations that do not stand."""
    standing: dict[Tenant, list[Claim]] = defaultdict(list)
    found = {}
    for claim in sorted(claims, key=lambda each: (each.declared, each.reservation)):
        if not claim.intervals:
            continue
        excess = _excess(claim, standing[claim.tenant], tree)
        if excess is None:
            standing[claim.tenant].append(claim)
        else:
            found[claim.reservation] = excess
    return found


def key_of(claim: Claim, tree: Tree) -> ModelKey:
    """Return the key under which the claim's GPUs count against quotas."""
    return tree.keys.of(claim.model) if claim.model else ANY


def _excess(claim: Claim, standing: list[Claim], tree: Tree) -> Excess | None:
    key = key_of(claim, tree)
    nominal = tree.tenant(claim.tenant).limit(key).nominal
    if len(standing) >= MAX_PER_TENANT:
        return Excess(nominal, 0, claim.intervals[0][0], is_too_many=True)
    alike = [each for each in standing if key_of(each, tree) == key]
    starts = [interval[0] for each in (claim, *alike) for interval in each.intervals]
    for at in sorted(at for at in set(starts) if _is_reserved(claim, at)):
        others = sum(each.milli for each in alike if _is_reserved(each, at))
        if others + claim.milli > nominal:
            return Excess(nominal, others, at)
    return None


def _is_reserved(claim: Claim, at: float) -> bool:
    return any(start <= at < end for start, end in claim.intervals)
