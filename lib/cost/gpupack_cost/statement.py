# SPDX-License-Identifier: Apache-2.0
"""Sums with their costs, grouped by namespace, job, cohort or model."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from gpupack_cost.amounts import Amounts
from gpupack_cost.holding import Key
from gpupack_cost.prices import Tariffs

NOTHING = Amounts()


class Group(StrEnum):
    """The attribute that makes a line."""

    NAMESPACE = "namespace"
    JOB = "job"
    COHORT = "cohort"
    MODEL = "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a statement; fields outside the grouping are empty.

    The cohort of a tenant that was in several cohorts is empty. `cost` None: a part has no price.
    """

    tenant: str = ""
    cohort: str = ""
    job: str = ""
    model: str = ""
    amounts: Amounts = NOTHING
    cost: float | None = 0.0


def statement(entries: Iterable[tuple[Key, Amounts]], by: Group, tariffs: Tariffs) -> list[Line]:
    """Return one line for each group, in alphabetical order."""
    found: dict[tuple[str, str, str], Line] = {}
    for key, amounts in entries:
        at = _grouped(key, by)
        more = _line(key, by, amounts, _cost(key, amounts, tariffs))
        found[at] = _added(found[at], more) if at in found else more
    return [found[at] for at in sorted(found)]


def total(lines: Iterable[Line]) -> Line:
    """Add up all lines; the cost is None if a line has none."""
    amounts, cost = NOTHING, 0.0
    priced = True
    for line in lines:
        amounts += line.amounts
        priced = priced and line.cost is not None
        cost += line.cost or 0.0
    return Line(amounts=amounts, cost=cost if priced else None)


def _grouped(key: Key, by: Group) -> tuple[str, str, str]:
    match by:
        case Group.NAMESPACE:
            return key.tenant, "", ""
        case Group.JOB:
            return key.tenant, key.job, ""
        case Group.COHORT:
            return key.cohort, "", ""
        case Group.MODEL:
            return key.model, "", ""


def _line(key: Key, by: Group, amounts: Amounts, cost: float | None) -> Line:
    match by:
        case Group.NAMESPACE:
            return Line(tenant=key.tenant, cohort=key.cohort, amounts=amounts, cost=cost)
        case Group.JOB:
            return Line(
                tenant=key.tenant, cohort=key.cohort, job=key.job, amounts=amounts, cost=cost
            )
        case Group.COHORT:
            return Line(cohort=key.cohort, amounts=amounts, cost=cost)
        case Group.MODEL:
            return Line(model=key.model, amounts=amounts, cost=cost)


def _added(line: Line, more: Line) -> Line:
    known = line.cost is not None and more.cost is not None
    return Line(
        tenant=line.tenant,
        cohort=line.cohort if line.cohort == more.cohort else "",
        job=line.job,
        model=line.model,
        amounts=line.amounts + more.amounts,
        cost=(line.cost or 0.0) + (more.cost or 0.0) if known else None,
    )


def _cost(key: Key, amounts: Amounts, tariffs: Tariffs) -> float | None:
    price = tariffs.price(key.tariff, key.model)
    return None if price is None else amounts.allocated_hours * price
