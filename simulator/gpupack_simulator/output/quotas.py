# SPDX-License-Identifier: Apache-2.0
"""Comparison of the same jobs under two sets of quotas."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from gpupack_queue import Quotas
from gpupack_simulator.job import JobId, Size
from gpupack_simulator.output import comparison
from gpupack_simulator.output.comparison import Cell, Metric, PreferredDirection, Table
from gpupack_simulator.output.digest import Digest, digest
from gpupack_simulator.output.fairness import Fairness, fairness
from gpupack_simulator.output.figures import Figures
from gpupack_simulator.output.results import Json, figures_json
from gpupack_simulator.output.units import UNITS, Unit
from gpupack_simulator.output.waits import measured, waits_of
from gpupack_simulator.output.waste import losses
from gpupack_simulator.record import Cause, JobRecord, Run

SCHEMA: Final = "gpupack.dev/simulation-quotas/v1"
TODAY: Final = "today"
PROPOSED: Final = "proposed"
SHOWN: Final = 30
"""Maximum number of tenants in the table, those with the largest changes of waits; the JSON has
all."""
NOTE: Final = "one seed; * best of its column; fairness is relative to the proposed nominal quotas"
NO_TENANT: Final = "(none)"
"""The name of jobs without a tenant."""


@dataclass(frozen=True, slots=True)
class TenantWaits:
    """The waits of one tenant under one set of quotas.

    Times are in the run's unit, GPU-time in the unit's GPU-time.
    """

    jobs: int
    mean: float | None
    p90: float | None
    preemptions: int
    gpu_time_lost: float


@dataclass(frozen=True, slots=True)
class Side:
    """The result of one set of quotas. `fairness` is by the proposed quotas on both sides."""

    digest: Digest
    fairness: Fairness
    tenants: dict[str, TenantWaits]
    preemptions: int
    gpu_time_lost: float


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """The comparison of today's and the proposed quotas."""

    today: Side
    proposed: Side
    unit: Unit

    @property
    def sides(self) -> dict[str, Side]:
        """Both sides by name."""
        return {TODAY: self.today, PROPOSED: self.proposed}

    @property
    def digests(self) -> tuple[Digest, Digest]:
        """Digests of both runs."""
        return self.today.digest, self.proposed.digest


def change(today: Run, proposed: Run, quotas: Quotas, *, capacity: int) -> QuotaChange:
    """Compare two runs.

    `quotas`: the proposed ones; `capacity`: milli-GPU that these jobs could use.
    """
    end = max(today.ended, proposed.ended)
    before, after = (_side(run, quotas, capacity, end) for run in (today, proposed))
    return QuotaChange(before, after, UNITS[today.time_unit])


def _side(run: Run, quotas: Quotas, capacity: int, end: float) -> Side:
    fair = fairness(run, quotas, capacity=capacity, until=end)
    lost, counted = _gpu_time_lost(run), _by_owner(measured(run))
    return Side(
        digest(run),
        fair,
        {
            tenant: _of_tenant(own, counted.get(tenant, []), lost)
            for tenant, own in sorted(_by_owner(run.jobs).items())
        },
        sum(record.preemptions for record in run.jobs),
        sum(lost.values(), 0.0),
    )


def _by_owner(records: Iterable[JobRecord]) -> dict[str, list[JobRecord]]:
    found: dict[str, list[JobRecord]] = {}
    for record in records:
        found.setdefault(record.job.tenant, []).append(record)
    return found


def _of_tenant(
    own: list[JobRecord], counted: list[JobRecord], lost: dict[JobId, float]
) -> TenantWaits:
    """Return the waits of a tenant; CPU-only jobs do not count, as in the overall mean."""
    waits = waits_of([record for record in counted if record.job.size is not Size.NONE])
    return TenantWaits(
        waits.jobs,
        waits.mean,
        waits.p90,
        sum(record.preemptions for record in own),
        sum((lost.get(record.job.id, 0.0) for record in own), 0.0),
    )


def _gpu_time_lost(run: Run) -> dict[JobId, float]:
    """Return the GPU-time lost to preemption, by job."""
    unit = UNITS[run.time_unit]
    found: dict[JobId, float] = {}
    for loss in losses(run, Cause.PREEMPTED):
        found[loss.job] = found.get(loss.job, 0.0) + loss.milli_time / unit.per_gpu_time
    return found


def tables(found: QuotaChange) -> list[Table]:
    """Return the tables: waits by tenant and size, cost of preemption, fairness, utilization."""
    made = [comparison.waits(found.digests), comparison.overview(found.digests)]
    by_quotas = [Table(t.title, t.metrics, t.rows, "quotas") for t in made]
    return [_by_tenant(found), by_quotas[0], _price(found), by_quotas[1]]


def _by_tenant(found: QuotaChange) -> Table:
    short = found.unit.short
    heads = [
        _column("jobs", "", 0),
        *(_column(f"{what}, {side}", short, 1) for what in ("mean", "p90") for side in found.sides),
        _column("change of the mean", short, 1),
    ]
    rows = {tenant or NO_TENANT: _tenant_row(found, tenant) for tenant in _most_changed(found)}
    hidden = len(found.today.tenants) - len(rows)
    more = f"; {hidden} tenants whose waits changed less are left out" if hidden else ""
    return Table(f"Waits by tenant{more}", tuple(heads), rows, "tenant")


def _tenant_row(found: QuotaChange, tenant: str) -> tuple[Cell, ...]:
    before, after = (side.tenants[tenant] for side in found.sides.values())
    values = [before.jobs, before.mean, after.mean, before.p90, after.p90, _changed(found, tenant)]
    digits = [0, *[1] * 5]
    return tuple(map(_cell, values, digits))


def _changed(found: QuotaChange, tenant: str) -> float | None:
    before, after = (side.tenants[tenant].mean for side in found.sides.values())
    return None if before is None or after is None else after - before


def _most_changed(found: QuotaChange) -> list[str]:
    """Return the tenants with the largest changes, by name; all, if they fit in the table."""
    tenants = list(found.today.tenants)
    if len(tenants) <= SHOWN:
        return tenants
    by_change = sorted(tenants, key=lambda tenant: -abs(_changed(found, tenant) or 0.0))
    return sorted(by_change[:SHOWN])


def _price(found: QuotaChange) -> Table:
    heads = (
        _column("preemptions", "", 0),
        _column(f"{found.unit.gpu_time} lost to preemption", "", 2),
        _column("fairness, mean", "Jain's index", 3),
    )
    rows = {
        name: (
            _cell(side.preemptions, 0),
            _cell(side.gpu_time_lost, 2),
            _cell(side.fairness.mean, 3),
        )
        for name, side in found.sides.items()
    }
    return Table("Preemptions and fairness", heads, rows, "quotas")


def _column(title: str, unit: str, digits: int) -> Metric:
    return Metric(title, unit, PreferredDirection.NEITHER, digits, _none)


def _none(_figures: Figures) -> None:
    """Return nothing, since these cells are not read from a digest."""


def _cell(value: float | None, digits: int) -> Cell:
    return Cell({} if value is None else {0: float(value)}, digits)


def verdict(found: QuotaChange) -> str:
    """Describe what would have changed, in two sentences computed from the figures."""
    before, after = (side.digest.figures.wait_mean or 0.0 for side in found.sides.values())
    short = found.unit.short
    changes = [_changed(found, tenant) or 0.0 for tenant in found.today.tenants]
    longer = sum(change > 0 for change in changes)
    shorter = sum(change < 0 for change in changes)
    stopped = (side.preemptions for side in found.sides.values())
    lost = (side.gpu_time_lost for side in found.sides.values())
    pair_text = partial("{1:,} instead of {0:,}".format)
    return (
        f"Under the proposed quotas jobs wait {after:,.1f} {short} on average instead of "
        f"{before:,.1f} {short}: shorter for {shorter} of {len(changes)} tenants, longer for "
        f"{longer}. Jobs are preempted {pair_text(*stopped)} times, and "
        f"{pair_text(*(round(amount, 1) for amount in lost))} {found.unit.gpu_time} of work are "
        "lost with them."
    )


def change_json(found: QuotaChange, parameters: Json) -> Json:
    """Return all compared figures as JSON; names of fields end in their unit."""
    return {
        "schema": SCHEMA,
        "time_unit": str(found.today.digest.unit),
        "nodes": found.today.digest.nodes,
        "gpus": found.today.digest.gpus,
        "parameters": parameters,
        **{name: _side_json(side, found.unit) for name, side in found.sides.items()},
    }


def _side_json(side: Side, unit: Unit) -> Json:
    fair = side.fairness
    return {
        "figures": figures_json(side.digest.figures, side.digest.unit),
        "preemptions": side.preemptions,
        f"lost_to_preemption_{unit.gpu_time_key}": round(side.gpu_time_lost, 6),
        "fairness_jain_mean": _rounded(fair.mean),
        f"fairness_window_ends_{unit.key}": [round(float(edge), 6) for edge in fair.edges[1:]],
        "fairness_jain": [_rounded(float(value)) for value in fair.index],
        "tenants": {
            tenant: {
                "jobs": of.jobs,
                f"wait_mean_{unit.key}": _rounded(of.mean),
                f"wait_p90_{unit.key}": _rounded(of.p90),
                "preemptions": of.preemptions,
                f"lost_to_preemption_{unit.gpu_time_key}": round(of.gpu_time_lost, 6),
            }
            for tenant, of in side.tenants.items()
        },
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None or np.isnan(value) else round(value, 6)
