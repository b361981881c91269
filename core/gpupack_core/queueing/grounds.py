# SPDX-License-Identifier: Apache-2.0
"""Whether one job may be stopped for another, by what the books would say afterwards.

An extra worker of an elastic gang: always. Of its own tenant: jobs of lower priority. Of another
tenant: where the paths of both through the tree part, let `ours` be the child above the beneficiary
and `theirs` the one above the victims.
Then, of each model that a victim has and the job takes,

- theirs borrows it, and would still borrow if any one of its victims were spared: nobody goes below
  the promise for a job that needed less;
- afterwards the share of it that is ours is no larger than theirs, nor without end, as that of
  weight 0 is. Within its promise a share is 0, so what was promised can always be had back; and
  beyond that a tenant never takes so much that the other is left with less than it has.

So no two can take from each other in turn: every such step makes the smaller share of the two
larger and keeps it the smaller. Comparing dominant shares was rejected: they stay as they are when
a model changes hands of which neither has most, so that it could change back. Comparing with the
share before the loss was, too: a job of one GPU would then stop one of eight.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Final

from gpupack_core.queueing.books import Books
from gpupack_core.queueing.charge import Charge, Key, least
from gpupack_core.queueing.decisions import Ground
from gpupack_core.queueing.job import Job, Running, Tenant
from gpupack_core.queueing.tree import UNBOUNDED, NodeId, TreeNode
from gpupack_core.queueing.usage import Usage

_EQUAL: Final = 1e-9
"""Shares that differ by less are the same."""

_Alike = tuple[Tenant, frozenset[tuple[Key, int]]]
"""Whose it is, and what it counts."""


@dataclass(slots=True)
class Grounds:
    """For one job that waits. The books are as before after each question."""

    books: Books
    job: Job
    keys: frozenset[Key]
    """Of the GPUs that it may get."""
    relieved: bool
    """Whether jobs of its own tenant could be stopped, too."""
    _after: dict[tuple[NodeId, Key], float] = field(init=False)
    _tolerated: dict[frozenset[tuple[_Alike, int]], bool] = field(default_factory=dict)
    _partings: dict[Tenant, tuple[TreeNode, TreeNode]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tree = self.books.tree
        path = [tree.node(of) for of in tree.tenant(self.job.tenant).path]
        self._after = {
            (node.id, key): self._share_after(node, key) for node in path for key in self.keys
        }

    def against(self, tenant: Tenant) -> bool:
        """Whether any job of the tenant could be among the victims."""
        usage = self.books.usage
        if tenant == self.job.tenant:
            return self.relieved
        ours, theirs = self._parting(tenant)
        return any(
            usage.borrowed(theirs, key) and self._is_larger(theirs, key, self._after[ours.id, key])
            for key in self.keys
        )

    def _is_larger(self, theirs: TreeNode, key: Key, ours: float) -> bool:
        """Whether their share is no smaller than ours, or ours is promised."""
        rules = self.books.rules.preemption
        if rules.nominal and not ours:
            return True
        is_last = ours == inf  # of weight 0: two of them would take from each other in turn
        of_theirs = self.books.usage.share_of(theirs, key)
        return rules.fair_share and not is_last and ours <= of_theirs + _EQUAL

    def _share_after(self, node: TreeNode, key: Key) -> float:
        """Of a node above the job, at the least, once it runs on GPUs of this key."""
        if len(self.keys) > 1 and self.job.gang.workers > 1:
            return 0.0  # it may be spread over several keys
        charge = {key: least(self.job.gang)}
        if self.relieved or not node.is_tenant:
            alone = Usage(self.books.tree)  # as if all others of the node were stopped
            alone.add(self.job.tenant, charge)
            return alone.share_of(node, key)
        with self._with(charge):
            return self.books.usage.share_of(node, key)

    def against_job(self, running: Running) -> bool:
        """Whether this job of such a tenant could be, once it has run for long enough."""
        job = running.job
        if job.extends is not None:
            return True
        if not job.preemptible:
            return False
        if job.tenant == self.job.tenant:
            return job.priority < self.job.priority
        return any(running.charge.get(key) for key in self.keys)

    def tolerate_one(self, running: Running) -> bool:
        """As `tolerate`."""
        return self._tolerate_together((running,))

    def tolerate(self, victims: Sequence[Running]) -> bool:
        """False: neither this set nor a larger one can be allowed.

        What is stopped of our own makes our share smaller, so it is taken at its smallest. Victims
        below different children of the node where their paths part from ours leave each other's
        shares as they are.
        """
        together: dict[NodeId, list[Running]] = {}
        for running in victims:
            if running.job.tenant != self.job.tenant:
                _, theirs = self._parting(running.job.tenant)
                together.setdefault(theirs.id, []).append(running)
        return all(map(self._tolerate_together, together.values()))

    def _tolerate_together(self, victims: Sequence[Running]) -> bool:
        """Asked once of those that are alike in the books."""
        asked = frozenset(Counter(map(_alike, victims)).items())
        known = self._tolerated.get(asked)
        if known is None:
            with self._without(victims):
                known = self._tolerated[asked] = all(map(self._is_tolerable, victims))
        return known

    def losable(self, running: Sequence[Running], milli: Sequence[int]) -> int:
        """At the most so many milli-GPU may be lost by these together, by `tolerate`.

        Those of each kind are asked about as if no others were stopped.

        Args:
            running: who could be stopped.
            milli: what each of them would lose.
        """
        alike: dict[_Alike, list[tuple[int, Running]]] = {}
        for one, lost in zip(running, milli, strict=True):
            alike.setdefault(_alike(one), []).append((lost, one))
        return sum(map(self._losable_of_kind, alike.values()))

    def _losable_of_kind(self, kind: list[tuple[int, Running]]) -> int:
        total, together = 0, list[Running]()
        for lost, one in sorted(kind, key=lambda each: each[0], reverse=True):
            together.append(one)
            if not self.tolerate(together):
                break
            total += lost
        return total

    def _is_tolerable(self, victim: Running) -> bool:
        if victim.job.tenant == self.job.tenant or victim.job.extends is not None:
            return True
        ours, theirs = self._parting(victim.job.tenant)
        return any(
            self._borrows_with(victim, theirs, key)
            and self._is_larger(theirs, key, self._after[ours.id, key])
            for key in self.keys
        )

    def relieves(self, running: Running, keys: frozenset[Key]) -> bool:
        """Whether its end can leave the job more of a promise of these keys, or a smaller share.

        So it is where both count against one node of the tree that promises or limits something.
        """
        if not any(running.charge.get(key) for key in keys):
            return False
        if running.job.tenant == self.job.tenant:
            return True
        top = self.books.tree.top
        ours, _ = self._parting(running.job.tenant)
        return ours.parent is not top or any(top.promised.get(key, 0) < UNBOUNDED for key in keys)

    def may_pay(self, charge: Charge, gone: Iterable[tuple[Running, int]]) -> bool:
        """Whether the quota allows `charge` if so many that are as these had ended."""
        usage = self.books.usage
        ended = [
            (one.job.tenant, {key: jobs * milli for key, milli in one.charge.items()})
            for one, jobs in gone
        ]
        for tenant, all_of_kind in ended:
            usage.add(tenant, all_of_kind, sign=-1)
        found = usage.fits(self.job.tenant, charge)
        for tenant, all_of_kind in ended:
            usage.add(tenant, all_of_kind)
        return found

    def allow(self, victims: Sequence[Running], charge: Charge) -> bool:
        """Whether the job may take `charge` when all of these are stopped."""
        with self._without(victims):
            if not self.books.usage.fits(self.job.tenant, charge):
                return False
            with self._with(charge):
                return all(self._is_fair(victim, charge) for victim in victims)

    def ground(self, victim: Running, victims: Sequence[Running], charge: Charge) -> Ground:
        """With which right it is among them."""
        if victim.job.extends is not None:
            return Ground.SHRINK
        if victim.job.tenant == self.job.tenant:
            return Ground.PRIORITY
        ours, _ = self._parting(victim.job.tenant)
        with self._without(victims), self._with(charge):
            borrows = any(self.books.usage.share_of(ours, key) for key in _both(victim, charge))
        return Ground.FAIR_SHARE if borrows else Ground.NOMINAL_QUOTA

    def _is_fair(self, victim: Running, charge: Charge) -> bool:
        """In the books everything has happened already."""
        if victim.job.tenant == self.job.tenant or victim.job.extends is not None:
            return True
        ours, theirs = self._parting(victim.job.tenant)
        keys = _both(victim, charge)
        return bool(keys) and all(
            self._borrows_with(victim, theirs, key)
            and self._is_larger(theirs, key, self.books.usage.share_of(ours, key))
            for key in keys
        )

    def _borrows_with(self, victim: Running, theirs: TreeNode, key: Key) -> bool:
        """Whether theirs would borrow the key if the victim, which has some of it, were spared."""
        milli, used = victim.charge.get(key, 0), self.books.usage.of(theirs).get(key, 0)
        return bool(milli) and used + milli > theirs.promised.get(key, 0)

    def _parting(self, other: Tenant) -> tuple[TreeNode, TreeNode]:
        """Ours and theirs."""
        known = self._partings.get(other)
        if known is None:
            known = self._partings[other] = self.books.tree.parting(self.job.tenant, other)
        return known

    @contextmanager
    def _without(self, victims: Iterable[Running]) -> Iterator[None]:
        usage, stopped = self.books.usage, tuple(victims)
        for running in stopped:
            usage.add(running.job.tenant, running.charge, sign=-1)
        try:
            yield
        finally:
            for running in stopped:
                usage.add(running.job.tenant, running.charge)

    @contextmanager
    def _with(self, charge: Charge) -> Iterator[None]:
        self.books.usage.add(self.job.tenant, charge)
        try:
            yield
        finally:
            self.books.usage.add(self.job.tenant, charge, sign=-1)


def _alike(running: Running) -> _Alike:
    return running.job.tenant, frozenset(running.charge.items())


def _both(victim: Running, charge: Charge) -> list[Key]:
    """What the victim has and the job takes."""
    return [key for key, milli in victim.charge.items() if milli and charge.get(key)]
