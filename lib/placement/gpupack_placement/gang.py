# SPDX-License-Identifier: Apache-2.0
"""Placement of gangs: all workers of all roles or none.

A gang of one role is placed exactly when there is a way (role_plan.py). Roles of different requests
compete for what is left on a node, so no sum tells whether they fit. They are placed one after
another, the largest request first, each as the policy wants it. Where that fails, a search decides
it (role_search.py). It finds a way exactly when there is one, within a bound on its steps. Beyond
that the gang waits although it may fit, and is never said to be impossible.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

import numpy as np

from gpupack_devices.units import NodeName
from gpupack_placement.arrays import BoolArray
from gpupack_placement.cluster import Cluster
from gpupack_placement.decide import decide
from gpupack_placement.nearest import nearest_gang
from gpupack_placement.placement import Placement
from gpupack_placement.policies.first_fit import FirstFit
from gpupack_placement.policies.policy import Policy
from gpupack_placement.reasons import Reason, Refusal, count_text
from gpupack_placement.refusals import refusal
from gpupack_placement.request import Gang, Request, Role, Spread
from gpupack_placement.role_plan import choose_role, fits, plan_role, spread_text
from gpupack_placement.role_search import RoleSearch

_ANY_POLICY: Final = FirstFit()
"""Any policy will do for questions whose answer is no placement."""


def plan_gang(
    cluster: Cluster,
    gang: Gang,
    policy: Policy,
    *,
    candidates: Iterable[NodeName] | None = None,
) -> tuple[Placement, ...] | Refusal:
    """Return the placement of each worker, by its index; the given cluster is not changed."""
    names = None if candidates is None else tuple(candidates)
    if len(gang.roles) > 1:
        placements = choose_gang(cluster, gang, policy, candidates=names)
        return placements or _refusal_of_roles(cluster, gang, names)
    (role,) = gang.limited_roles
    answer = plan_role(cluster, role, policy, names)
    if isinstance(answer, Refusal):
        never = never_fits(cluster, gang)
        return dataclasses.replace(answer, gang=f"gang of {answer.gang}", never=never)
    return answer


def why_not(cluster: Cluster, gang: Gang, policy: Policy) -> Refusal | None:
    """Return why the gang does not fit; None: it fits."""
    alone = gang.workers == 1 and not any(r.spread.same_clique for r in gang.limited_roles)
    answer = (
        decide(cluster, gang.roles[0].request, policy)
        if alone
        else plan_gang(cluster, gang, policy)
    )
    return answer if isinstance(answer, Refusal) else None


def choose_gang(
    cluster: Cluster,
    gang: Gang,
    policy: Policy,
    *,
    candidates: Iterable[NodeName] | None = None,
) -> tuple[Placement, ...] | None:
    """Place a gang as `plan_gang` does, without the reason of a refusal.

    The reason costs several times as much as the plan.
    """
    among = cluster.among(candidates)
    if len(gang.roles) > 1:
        return _find(cluster, gang, policy, among).placements
    (role,) = gang.limited_roles
    return choose_role(cluster.overlay(), role, policy, among)


def never_fits(cluster: Cluster, gang: Gang) -> bool:
    """Tell whether the gang would not fit on the empty cluster either.

    An empty inventory proves nothing: nodes may be about to report. Nor does a search that ends
    without an answer.
    """
    empty = cluster.emptied()
    if not len(cluster):
        return False
    if len(gang.roles) == 1:
        return not has_slots(empty, gang)
    found = _find(empty, gang, _ANY_POLICY, empty.arrays.present)
    return found.placements is None and found.is_exact


def has_slots(cluster: Cluster, gang: Gang) -> bool:
    """Tell whether as many workers fit as each role has; necessary for a plan, not sufficient."""
    return all(fits(cluster, role, cluster.arrays.present) for role in gang.limited_roles)


@dataclasses.dataclass(frozen=True, slots=True)
class _Found:
    """The placement of each worker by index; None: there is none, or no way was found."""

    placements: tuple[Placement, ...] | None
    is_exact: bool = True


def _find(cluster: Cluster, gang: Gang, policy: Policy, among: BoolArray) -> _Found:
    """Place several roles as the policy wants it, or in the way that a search finds."""
    overlay = cluster.overlay()
    if not all(fits(overlay, role, among) for role in gang.limited_roles):
        return _Found(None)
    placed, failed = _place_in_order(overlay, gang, policy, among)
    if failed is None and _is_together(gang, placed):
        return _Found(tuple(p for number in sorted(placed) for p in placed[number]))
    found = RoleSearch(cluster, gang, among).run()
    by_role = found.placements
    return _Found(None if by_role is None else tuple(chain(*by_role)), found.is_exact)


def _place_in_order(
    overlay: Cluster, gang: Gang, policy: Policy, among: BoolArray
) -> tuple[dict[int, tuple[Placement, ...]], Role | None]:
    """Place one role after another on an overlay, the largest request first.

    Returns:
        the placements by the number of the role, and the first role that does not fit.
    """
    used, placed = np.zeros_like(among), dict[int, tuple[Placement, ...]]()
    roles = gang.limited_roles
    for number in _largest_first(roles):
        rows = among & ~used if gang.spread.one_worker_per_node else among
        found = choose_role(overlay, roles[number], policy, rows)
        if found is None:
            return placed, roles[number]
        placed[number] = found
        used[overlay.rows([placement.node for placement in found])] = True
    return placed, None


def _is_together(gang: Gang, placed: Mapping[int, Sequence[Placement]]) -> bool:
    """Tell whether roles that were placed one after another keep the node limit of the gang.

    Roles that must be in one clique are not placed in this way.
    """
    nodes = {placement.node for of_role in placed.values() for placement in of_role}
    limit = gang.spread.max_nodes
    return not gang.spread.same_clique and (limit is None or len(nodes) <= limit)


def _largest_first(roles: Sequence[Role]) -> list[int]:
    """Return the numbers of the roles: those with tight limits first, then by their requests."""

    def key(number: int) -> tuple[object, ...]:
        request, spread = roles[number].request, roles[number].spread
        limits = not spread.same_clique, spread.max_nodes is None
        return *limits, -request.milli, -request.devices, -request.cpu, -request.memory, number

    return sorted(range(len(roles)), key=key)


def _refusal_of_roles(cluster: Cluster, gang: Gang, names: tuple[NodeName, ...] | None) -> Refusal:
    """Return why a role does not fit: by itself, with the roles placed before it, or as limited."""
    among, roles, seen = cluster.among(names), gang.limited_roles, cluster
    failed = next((role for role in roles if not fits(cluster, role, among)), None)
    which = "role {}: "
    if failed is None:
        seen, which = cluster.overlay(), "with the other roles placed, role {}: "
        apart = dataclasses.replace(gang, spread=Spread())
        _, failed = _place_in_order(seen, apart, _ANY_POLICY, among)
    role = failed or roles[_largest_first(roles)[0]]
    nearest = nearest_gang(role.request, lambda less: _would_fit(cluster, gang, role, less, among))
    if nearest is not None:
        nearest = dataclasses.replace(nearest, role=role.name)
    answer = plan_role(seen, role, _ANY_POLICY, names, nearest) if failed else None
    if isinstance(answer, Refusal):
        text = f"{which.format(role.name)}{answer.gang}"
    else:
        text = f"each role fits, but not all of them{spread_text(gang.spread)}"
        answer = refusal(
            cluster, role.request, candidates=names, never=False, gang=text, nearest=nearest
        )
        answer = dataclasses.replace(answer, limit=Reason.SPREAD_LIMIT)
    workers = count_text(gang.workers, "worker")
    text = f"gang of {len(roles)} roles and {workers}: {text}"
    return dataclasses.replace(answer, gang=text, never=never_fits(cluster, gang), role=role.name)


def _would_fit(cluster: Cluster, gang: Gang, role: Role, less: Request, among: BoolArray) -> bool:
    """Tell whether the gang would fit with this request of the role, as the policy places roles."""
    smaller = gang.with_requests(
        [less if each.name == role.name else each.request for each in gang.roles]
    )
    placed, failed = _place_in_order(cluster.overlay(), smaller, _ANY_POLICY, among)
    return failed is None and _is_together(smaller, placed)
