# SPDX-License-Identifier: Apache-2.0
"""Authorized answers: rows of the namespaces in which the caller may list GPUJobs.

Totals cover only these namespaces, including a cohort's total: the difference to the whole would
reveal the usage of others. Unheld GPUs reveal the usage of all, so they are only for callers that
may see all namespaces.
"""

import asyncio
import datetime as dt
import urllib.parse
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

import msgspec
from litestar import Response

from gpupack_apiserver import caller_header
from gpupack_apiserver.accounts.store import DAY_SECONDS, Reader, Unheld
from gpupack_apiserver.accounts.usage_recorder import OpenPeriod, UsageRecorder
from gpupack_apiserver.cost_views import cost_csv, cost_row, rounded
from gpupack_apiserver.errors import CallInvalid
from gpupack_apiserver.rights import Rights, require_within_limit
from gpupack_apiserver.routes.cost import CSV, Call, CostQuery, Format, query_limits
from gpupack_cost import (
    JOULES_PER_KWH,
    SECONDS_PER_HOUR,
    Amounts,
    Group,
    Key,
    Line,
    gpu_hours,
    hour_of,
    statement,
    total,
)
from gpupack_crds.times import format_time
from gpupack_httpserver.access import Caller
from gpupack_httpserver.errors import Denied
from gpupack_httpserver.user import User
from gpupack_restapi.cost import Costs, UnheldRow
from gpupack_scheduler.errors import NotReady

DEFAULT_DAYS: Final = 30
"""Days of a query without `since`."""

MAX_CONCURRENT: Final = 2
MAX_JOBS: Final = 100_000
"""Maximum rows by job and day that one query reads; one namespace has fewer."""

KIND: Final = "gpujobs"


class Period(msgspec.Struct, frozen=True):
    """A period between starts of hours, for jobs of days; `until` is excluded."""

    since: int
    until: int


class CostQueries:
    """The cost service's implementation of CostBackend.

    Args:
        recorder: source of the sums.
        rights: authorization of callers.
        missing: returns what is missing for an answer; empty: nothing.
        now: returns seconds since the epoch.
    """

    def __init__(
        self,
        recorder: UsageRecorder,
        rights: Rights,
        *,
        missing: Callable[[], str],
        now: Callable[[], float],
    ) -> None:
        self._recorder, self._rights = recorder, rights
        self._missing, self._now = missing, now
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)
        self._limits = query_limits()

    async def answer(self, call: Call, query: CostQuery) -> Response[bytes]:
        """Return rows, their sum, and the unheld GPUs."""
        user = await self._user(call)
        period = period_of(query, self._now())
        async with self._slots:
            costs = await self._costs(user, query, period)
        if query.format is Format.CSV:
            return _csv(call, costs)
        return Response(msgspec.json.encode(costs), media_type="application/json")

    async def _user(self, call: Call) -> User:
        caller = Caller(
            authorization=call.headers.get("authorization", ""),
            address=call.client.host if call.client else "",
        )
        user = await self._rights.authenticate(caller)
        if named := call.headers.get(caller_header.HEADER):
            await self._rights.require_cost_forwarder(user)
            user = caller_header.decode(named)
        if missing := self._missing():
            raise NotReady(f"what is held is not known: {missing}")
        require_within_limit(self._limits, user)
        return user

    async def _costs(self, user: User, query: CostQuery, period: Period) -> Costs:
        # Nothing is written between these two reads: what one lacks is in the other.
        reader = self._recorder.reader()
        periods = self._recorder.open_periods(period.since, period.until)
        try:
            existing = {each.claim.namespace for each in periods}
            existing |= {*await asyncio.to_thread(reader.namespaces)}
            seen = await self._rights.visible(
                user, KIND, namespace=query.namespace, existing=existing
            )
            sees_all = await self._sees_all(user)
            wanted = None if sees_all and not query.namespace else frozenset(seen)
            lines = await asyncio.to_thread(self._lines, reader, periods, query, period, wanted)
            unheld = reader.unheld(period.since, period.until) if sees_all else None
        finally:
            reader.close()
        return await asyncio.to_thread(self._to_costs, lines, query, period, unheld)

    async def _sees_all(self, user: User) -> bool:
        try:
            await self._rights.require_namespace(user, KIND, "")
        except Denied:
            return False
        return True

    def _lines(
        self,
        reader: Reader,
        periods: list[OpenPeriod],
        query: CostQuery,
        period: Period,
        namespaces: Collection[str] | None,
    ) -> list[Line]:
        tariffs = self._recorder.tariffs
        shown = (
            each for each in periods if namespaces is None or each.claim.namespace in namespaces
        )
        open_amounts = list(self._recorder.amounts(shown))
        sums = reader.sums(period.since, period.until, namespaces)
        if query.group_by is not Group.JOB:
            return statement((*sums, *open_amounts), query.group_by, tariffs)
        _require_job_limit(reader.count_jobs(period.since, period.until, namespaces))
        named = [*reader.jobs(period.since, period.until, namespaces), *open_amounts]
        whole = (
            *((key._replace(job=""), amounts) for key, amounts in sums),
            *_without_job(open_amounts),
        )
        others = _difference(whole, _without_job(named))
        return statement((*named, *others), Group.JOB, tariffs)

    def _to_costs(
        self,
        lines: list[Line],
        query: CostQuery,
        period: Period,
        unheld: dict[tuple[int, str], Unheld] | None,
    ) -> Costs:
        later = sorted((line for line in lines if cursor(line) > query.after), key=cursor)
        rows = later[: query.limit]
        return Costs(
            currency=self._recorder.tariffs.currency,
            since=dt.datetime.fromtimestamp(period.since, dt.UTC),
            until=dt.datetime.fromtimestamp(period.until, dt.UTC),
            group_by=str(query.group_by),
            rows=tuple(map(cost_row, rows)),
            total=cost_row(total(lines)),
            unheld=None if unheld is None else self._unheld(unheld),
            next=cursor(rows[-1]) if len(later) > len(rows) else "",
        )

    def _unheld(self, found: dict[tuple[int, str], Unheld]) -> tuple[UnheldRow, ...]:
        rows: dict[str, UnheldRow] = {}
        for (tariff, model), each in sorted(found.items(), key=lambda item: item[0][1]):
            price = self._recorder.tariffs.price(tariff, model)
            hours, unusable = gpu_hours(each.usable), gpu_hours(each.unusable)
            row = UnheldRow(
                model=model,
                unheld_gpu_hours=hours,
                unusable_gpu_hours=unusable,
                energy_kwh=each.joules / JOULES_PER_KWH if each.metered else None,
                cost=None if price is None else (hours + unusable) * price,
            )
            rows[model] = _add_rows(rows[model], row) if model in rows else row
        return tuple(_rounded(row) for row in rows.values())


def _require_job_limit(jobs: int) -> None:
    if jobs > MAX_JOBS:
        raise CallInvalid(
            "namespace",
            "",
            f"name one, or a shorter period: there are {jobs} jobs, and the maximum is {MAX_JOBS}",
        )


def period_of(query: CostQuery, now: float) -> Period:
    """Return the hours, or days, that contain both times.

    Raises:
        CallInvalid: the end is before the start.
    """
    step = DAY_SECONDS if query.group_by is Group.JOB else SECONDS_PER_HOUR
    until = min(_timestamp(query.until, now), now)
    since = max(_timestamp(query.since, until - DEFAULT_DAYS * DAY_SECONDS), 0.0)
    if since > until:
        field, value = ("until", query.until) if query.since is None else ("since", query.since)
        shown = value.isoformat() if value else ""
        raise CallInvalid(field, shown, "name a `since` before `until` and before now, after 1970")
    first = hour_of(since) // step * step
    return Period(first, max(-int(-until // step) * step, first + step))


def cursor(line: Line) -> str:
    """Return the cursor of a row in `after` and `next`."""
    return "/".join((line.tenant or line.cohort or line.model, line.job))


def _timestamp(time: dt.datetime | None, otherwise: float) -> float:
    if time is None:
        return otherwise
    return (time if time.tzinfo else time.replace(tzinfo=dt.UTC)).timestamp()


def _without_job(entries: Iterable[tuple[Key, Amounts]]) -> Iterator[tuple[Key, Amounts]]:
    return ((key._replace(job=""), amounts) for key, amounts in entries)


def _difference(
    whole: Iterable[tuple[Key, Amounts]], named: Iterable[tuple[Key, Amounts]]
) -> list[tuple[Key, Amounts]]:
    """Return the part of the whole that the named rows lack, by all but job and hour."""
    left: dict[Key, Amounts] = {}
    for sign, entries in ((1.0, whole), (-1.0, named)):
        for key, amounts in entries:
            at = key._replace(hour=0)
            left[at] = left.get(at, Amounts()) + _scale(amounts, sign)
    return [(key, _positive(amounts)) for key, amounts in left.items() if amounts.allocated > 1.0]


def _scale(amounts: Amounts, factor: float) -> Amounts:
    return Amounts(
        amounts.allocated * factor,
        amounts.measured * factor,
        amounts.used * factor,
        amounts.metered * factor,
        amounts.joules * factor,
    )


def _positive(amounts: Amounts) -> Amounts:
    return Amounts(
        amounts.allocated,
        max(amounts.measured, 0.0),
        max(amounts.used, 0.0),
        max(amounts.metered, 0.0),
        max(amounts.joules, 0.0),
    )


def _add_rows(one: UnheldRow, other: UnheldRow) -> UnheldRow:
    return UnheldRow(
        model=one.model,
        unheld_gpu_hours=one.unheld_gpu_hours + other.unheld_gpu_hours,
        unusable_gpu_hours=one.unusable_gpu_hours + other.unusable_gpu_hours,
        energy_kwh=_add_optional(one.energy_kwh, other.energy_kwh),
        cost=None if one.cost is None or other.cost is None else one.cost + other.cost,
    )


def _add_optional(one: float | None, other: float | None) -> float | None:
    return None if one is None and other is None else (one or 0.0) + (other or 0.0)


def _rounded(row: UnheldRow) -> UnheldRow:
    return UnheldRow(
        model=row.model,
        unheld_gpu_hours=rounded(row.unheld_gpu_hours) or 0.0,
        unusable_gpu_hours=rounded(row.unusable_gpu_hours) or 0.0,
        energy_kwh=rounded(row.energy_kwh),
        cost=rounded(row.cost),
    )


def _csv(call: Call, costs: Costs) -> Response[bytes]:
    """Return an answer as CSV; where rows are left out, its Link is the call for the next ones.

    The link names the period of this answer, so that a new hour between two calls adds nothing.
    """
    headers = {"Content-Disposition": 'attachment; filename="gpupack-cost.csv"'}
    if costs.next:
        query = dict(urllib.parse.parse_qsl(call.scope["query_string"].decode("latin-1")))
        period = {"since": format_time(costs.since), "until": format_time(costs.until)}
        following = urllib.parse.urlencode(query | period | {"after": costs.next})
        headers["Link"] = f'<?{following}>; rel="next"'
    return Response(cost_csv(costs), media_type=CSV, headers=headers)
