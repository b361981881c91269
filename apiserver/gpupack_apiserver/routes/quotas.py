# SPDX-License-Identifier: Apache-2.0
"""GPUQuotas, in the namespaces that the caller may see: now, and in the last hour."""

import math
from collections.abc import Iterable
from typing import Annotated, Final

import msgspec
from litestar import get
from litestar.datastructures import State
from litestar.params import QueryParameter

from gpupack_apiserver import problems
from gpupack_apiserver.patterns import require_cursor
from gpupack_apiserver.quota_history import MAX_QUOTAS, Series
from gpupack_apiserver.rights import sees_nowhere
from gpupack_apiserver.routes.jobs import Namespace
from gpupack_apiserver.routes.parts import Call, Parts, parts_of
from gpupack_crds.gpujob_status import RunLimit
from gpupack_crds.kinds import GpuQuota
from gpupack_restapi import PREFIX
from gpupack_restapi.patterns import NAME
from gpupack_restapi.quotas import History, Quotas, QuotaSeries, QuotaView

DIGITS: Final = 3
"""Digits after the point: a thousandth of a GPU can be held."""

Limit = Annotated[int, QueryParameter(description="Maximum entries.", ge=1, le=MAX_QUOTAS)]
After = Annotated[
    str,
    QueryParameter(description="`next` of the previous page.", max_length=63),
]


class Visible(msgspec.Struct, frozen=True):
    """The quotas that a caller may see, by namespace, and whether it may list any."""

    quotas: dict[str, GpuQuota]
    may_list: bool


@get(f"{PREFIX}/quotas", tags=["jobs"], responses=problems.REFUSALS)
async def quotas(request: Call, state: State, namespace: Namespace = "") -> Quotas:
    """List GPUQuotas and their usage."""
    parts = parts_of(state)
    visible = await _visible(parts, request, namespace)
    shown = tuple(
        _quota(quota, parts.model.quotas.run_limit(name))
        for name, quota in sorted(visible.quotas.items())
    )
    return Quotas(shown, may_list=visible.may_list)


@get(f"{PREFIX}/quotas/history", tags=["jobs"], responses=problems.REFUSALS)
async def history(
    request: Call, state: State, namespace: Namespace = "", limit: Limit = 100, after: After = ""
) -> History:
    """Return quota and usage of each GPUQuota in the last hour, as this process saw them."""
    require_cursor(after, NAME)
    parts = parts_of(state)
    found = (await _visible(parts, request, namespace)).quotas
    kept = parts.quota_history
    wanted = [name for name in sorted(found) if name > after and name in kept.by_namespace]
    shown = wanted[:limit]
    return History(
        interval_seconds=kept.seconds,
        timestamps=tuple(kept.timestamps),
        quotas=tuple(_series(found[name], kept.by_namespace[name]) for name in shown),
        total=len(found),
        next=shown[-1] if len(wanted) > limit else "",
    )


async def _visible(parts: Parts, request: Call, namespace: str) -> Visible:
    user = await parts.authenticate(request)
    items = parts.model.quotas.quotas.items
    there = {key[0] for key in items}
    seen = await parts.rights.visible(user, "gpuquotas", namespace=namespace, existing=there)
    found = {key[0]: items[key] for key in items if key[0] in seen}
    return Visible(found, may_list=not sees_nowhere(user, seen, there))


def _quota(quota: GpuQuota, limit: RunLimit | None) -> QuotaView:
    status = quota.status
    return QuotaView(
        namespace=quota.metadata.namespace,
        cohort=quota.spec.cohort or "",
        nominal=status.nominal,
        used=status.used,
        borrowed=status.borrowed,
        lent=status.lent,
        running=status.running,
        waiting=status.waiting,
        problem="; ".join(filter(None, (status.problem, status.capacity_warning))),
        job_order=quota.spec.job_order,
        max_run_seconds=limit.seconds if limit else None,
    )


def _series(quota: GpuQuota, series: Series) -> QuotaSeries:
    return QuotaSeries(
        namespace=quota.metadata.namespace,
        cohort=quota.spec.cohort or "",
        nominal=_figures(series.nominal),
        used=_figures(series.used),
        borrowed=_figures(series.borrowed),
    )


def _figures(kept: Iterable[float]) -> tuple[float | None, ...]:
    return tuple(None if math.isnan(each) else round(each, DIGITS) for each in kept)
