# SPDX-License-Identifier: Apache-2.0
"""Who goes before whom: priority, then the tenants' shares, then age."""

from bisect import bisect_left, bisect_right
from operator import attrgetter

from gpupack_core.queueing.job import Job, Rank, Tenant
from gpupack_core.queueing.usage import Usage
from gpupack_core.queueing.waiting import Entry, Lane, Waiting

Precedence = tuple[int, tuple[float, ...], Rank]
"""The smallest goes first. Shares are from the root of the tree down to the tenant, so that cohorts
come by their shares, and tenants within them by theirs."""


class Order:
    """As things stand; `forget` follows each change of `felt`. None: shares do not count."""

    def __init__(self, felt: Usage | None) -> None:
        self._felt = felt
        self._shares: dict[Tenant, tuple[float, ...]] = {}

    def of(self, entry: Entry) -> Precedence:
        """Of a job that waits."""
        return entry.rank.minus_priority, self._shares_of(entry.job.tenant), entry.rank

    def forget(self, tenant: Tenant) -> None:
        """Its share has changed, and with it those of the cohorts above it."""
        if self._felt is None:
            return
        tree = self._felt.tree
        changed = tree.tenant(tenant).path[0]
        for other in [of for of in self._shares if tree.tenant(of).path[0] == changed]:
            del self._shares[other]

    def position(self, entry: Entry, waiting: Waiting) -> int:
        """1 for the first. What is admitted before it changes shares, and so may its position."""
        return 1 + sum(self.before_in(entry, lane) for lane in waiting.lanes())

    def before(self, entry: Entry, waiting: Waiting) -> list[Job]:
        """Those who go before it, lane by lane."""
        return [
            other.job
            for lane in waiting.lanes()
            for other in lane.entries[: self.before_in(entry, lane)]
        ]

    def before_in(self, entry: Entry, lane: Lane) -> int:
        """How many of the lane go before it. Ranks begin with the priority."""
        ours, theirs = self._shares_of(entry.job.tenant), self._shares_of(lane.tenant)
        by_priority = attrgetter("rank.minus_priority")
        if theirs < ours:
            return bisect_right(lane.entries, entry.rank.minus_priority, key=by_priority)
        if theirs > ours:
            return bisect_left(lane.entries, entry.rank.minus_priority, key=by_priority)
        return bisect_left(lane.entries, entry.rank, key=attrgetter("rank"))

    def _shares_of(self, tenant: Tenant) -> tuple[float, ...]:
        if self._felt is None:
            return ()
        known = self._shares.get(tenant)
        if known is None:
            known = self._shares[tenant] = self._felt.shares(tenant)
        return known
