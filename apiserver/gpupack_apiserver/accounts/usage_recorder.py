# SPDX-License-Identifier: Apache-2.0
"""Updates of the sums in the store from the tracked claims.

A claim that has ended is counted as a whole. An open one is counted up to the last full hour, and
the rest is computed for each question. A count that proves wrong is corrected by the difference.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import gpupack_cost as acc
from gpupack_apiserver.accounts.claim import Claim
from gpupack_apiserver.accounts.claim_tracker import ClaimTracker
from gpupack_apiserver.accounts.store import (
    DAY_SECONDS,
    JOB_DAYS,
    CapacityKey,
    Counted,
    Reader,
    Store,
    Unheld,
)
from gpupack_cost import Amounts, Key, Sums, Tariffs, hour_of

log = logging.getLogger(__name__)

FLUSH_SECONDS: Final = 0.5
"""Seconds between two checks for changes.

Changes that are lost in between come back from the objects.
"""

SEEN_SECONDS: Final = 5.0
"""Seconds between two writes of the time until which all objects were seen."""

FORGET_SECONDS: Final = 60.0
"""Seconds to keep an ended claim; its node's agent may report that its processes still run."""

LATE_SECONDS: Final = 60.0
"""Delay after an hour's end: by then most ends in it are known, and need no correction."""

DROP_SECONDS: Final = 3600.0


class OpenPeriod(NamedTuple):
    """A claim that has not ended, between two times."""

    claim: Claim
    start: float
    end: float


class UsageRecorder:
    """The only writer of the store.

    Args:
        tracker: all claims.
        store: store of the sums.
        tariffs: price lists.
        retention_seconds: how long sums are kept.
        now: returns seconds since the epoch.
        is_fresh: tells whether all objects are seen.
    """

    def __init__(
        self,
        tracker: ClaimTracker,
        store: Store,
        tariffs: Tariffs,
        *,
        retention_seconds: float,
        now: Callable[[], float],
        is_fresh: Callable[[], bool],
    ) -> None:
        self.tracker, self._store, self.tariffs = tracker, store, tariffs
        self._retention, self.now, self.is_fresh = retention_seconds, now, is_fresh
        self._counted: dict[str, Counted] = {}
        self._full_hour = 0
        self._seen_at = self._dropped_at = float("-inf")
        self._settled: dict[str, int] = {}

    def restore(self) -> None:
        """Restore what the previous process wrote."""
        saved = self._store.saved()
        self._counted = {each.claim.key: each for each in saved.counted}
        self._settled = dict(saved.settled)
        last_seen = self.now() if saved.last_seen is None else min(saved.last_seen, self.now())
        self.tracker.restore((each.claim for each in saved.counted), saved.settled, last_seen)

    async def run(self) -> None:
        """Write changes, without end."""
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            if self.is_fresh():
                self.flush()

    def flush(
        self,
        *,
        measured: dict[Key, Amounts] | None = None,
        unheld: dict[CapacityKey, Unheld] | None = None,
    ) -> None:
        """Write changes and measurements; nothing where there are none."""
        now = self.now()
        forgotten = self._forget(now)
        keys = self._keys_to_count(now)
        counted = [(each, sums) for key in keys for each, sums in self._recount(key, now)]
        is_seen = now - self._seen_at >= SEEN_SECONDS or now < self._seen_at
        if not (counted or forgotten or measured or unheld or is_seen):
            return
        settled = None if self.tracker.settled == self._settled else dict(self.tracker.settled)
        self._store.save(
            counted,
            forgotten=forgotten,
            settled=settled,
            measured=measured,
            unheld=unheld,
            last_seen=now,
        )
        self._record_written(counted, forgotten, settled, now)
        if now - self._dropped_at >= DROP_SECONDS:
            self._dropped_at = now
            self._store.drop_jobs_before(now - min(self._retention, JOB_DAYS * DAY_SECONDS))
            self._store.drop_before(now - self._retention)

    def open_periods(self, since: int, until: int) -> list[OpenPeriod]:
        """Return open claims with their times that are not counted yet, within whole hours."""
        now, found = self.now(), list[OpenPeriod]()
        for claim in self.tracker.open_claims():
            counted = self._counted.get(claim.key)
            start = claim.start
            if counted is not None and counted.end is not None:
                start = max(start, counted.end)
            start, end = max(start, since), min(now, until)
            if start < end:
                found.append(OpenPeriod(claim, start, end))
        return found

    def amounts(self, periods: Iterable[OpenPeriod]) -> Iterator[tuple[Key, Amounts]]:
        """Yield the amounts of open claims. Thread-safe, since many claims take long."""
        for claim, start, end in periods:
            for key, amount in acc.allocated(claim.holding(start, end), self.tariffs).items():
                yield key, Amounts(allocated=amount)

    def reader(self) -> Reader:
        """Return a reader of what is written; add `open_periods` to it."""
        self.flush()
        return self._store.reader()

    def close(self) -> None:
        """Write the last changes."""
        if self.is_fresh():
            self.flush()
        self._store.close()

    def _keys_to_count(self, now: float) -> set[str]:
        keys = set(self.tracker.changed)
        full_hour = hour_of(now - LATE_SECONDS)
        if full_hour > self._full_hour:
            self._full_hour = full_hour
            keys |= {claim.key for claim in self.tracker.open_claims()}
        return keys

    def _recount(self, key: str, now: float) -> Iterator[tuple[Counted, Sums]]:
        claim, before = self.tracker.claims.get(key), self._counted.get(key)
        after = None if claim is None else self._period_to_count(claim, now)
        if after is None and before is not None:
            after = Counted(before.claim)
        if after is None:
            return
        sums = acc.difference(
            before.holding if before else None, after.holding if after else None, self.tariffs
        )
        oldest = now - self._retention
        yield after, {sum_: amount for sum_, amount in sums.items() if sum_.hour >= oldest}

    def _period_to_count(self, claim: Claim, now: float) -> Counted:
        start, end = claim.start, claim.end
        if end is not None:
            return Counted(claim, start, min(end, now))
        full_hour = float(hour_of(now - LATE_SECONDS))
        return Counted(claim, start, full_hour) if full_hour > start else Counted(claim)

    def _forget(self, now: float) -> list[str]:
        """Forget claims that are over, and those that are counted under another key from now on."""
        over = self.tracker.list_forgettable(now - FORGET_SECONDS)
        self.tracker.forget(key for key in over if key not in self.tracker.changed)
        return [key for key in self._counted if key not in self.tracker.claims]

    def _record_written(
        self,
        counted: list[tuple[Counted, Sums]],
        forgotten: list[str],
        settled: dict[str, int] | None,
        now: float,
    ) -> None:
        self._counted |= {each.claim.key: each for each, _ in counted}
        for key in forgotten:
            self._counted.pop(key, None)
        self.tracker.changed.clear()
        self.tracker.last_seen = self._seen_at = now
        if settled is not None:
            self._settled = settled
