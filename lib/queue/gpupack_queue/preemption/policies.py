# SPDX-License-Identifier: Apache-2.0
"""The preemption policies: whether a job may be preempted, by the quota usage afterwards.

An extra worker of an elastic gang always may. In the preemptor's own tenant, jobs of lower priority
may. For another tenant, let `ours` and `theirs` be the nodes at which the paths of both through the
tree part: the child above the preemptor and the child above the victims. Then, of each model that a
victim holds and the preemptor takes,

- theirs borrows it, and would still borrow if any one of its victims were spared: no tenant falls
  below its guaranteed quota for a job that needs less;
- afterwards our share of it is not larger than theirs, and not infinite, as the share of weight 0
  is. Within its guaranteed quota a node has the share 0, so it can always reclaim its guaranteed
  quota. Beyond that a tenant never takes so much that the other one is left with less than it has.

So two tenants cannot preempt each other in turn: every such step makes the smaller of the two
shares larger and keeps it the smaller one. Two alternatives were rejected. Dominant shares do not
change when a model changes hands of which neither tenant has most, so it could change back. With
the share before the loss, a job of one GPU would preempt a job of eight.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Final

from gpupack_queue.charge import Charge, ModelKey, min_charge
from gpupack_queue.decisions import PreemptionReason
from gpupack_queue.job import Job, RunningJob, Tenant
from gpupack_queue.quotas.quota_usage import QuotaUsage
from gpupack_queue.quotas.tree import UNBOUNDED, NodeId, TreeNode
from gpupack_queue.quotas.usage import Usage

_EQUAL: Final = 1e-9
"""Shares that differ by less are equal."""

_UsageKey = tuple[Tenant, frozenset[tuple[ModelKey, int]]]
"""The tenant of a job, and what it counts."""


@dataclass(slots=True)
class PreemptionPolicy:
    """The policies for one preemptor; each method leaves the quota usage as it was."""

    quota: QuotaUsage
    job: Job
    keys: frozenset[ModelKey]
    """The keys of the GPUs that it may get."""
    may_preempt_own: bool
    """Whether jobs of its own tenant can be preempted, too."""
    _after: dict[tuple[NodeId, ModelKey], float] = field(init=False)
    _checked: dict[frozenset[tuple[_UsageKey, int]], bool] = field(default_factory=dict)
    _partings: dict[Tenant, tuple[TreeNode, TreeNode]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tree = self.quota.tree
        path = [tree.node(of) for of in tree.tenant(self.job.tenant).path]
        self._after = {
            (node.id, key): self._share_after(node, key) for node in path for key in self.keys
        }

    def may_preempt_tenant(self, tenant: Tenant) -> bool:
        """Tell whether any job of the tenant can be a victim."""
        usage = self.quota.usage
        if tenant == self.job.tenant:
            return self.may_preempt_own
        ours, theirs = self._diverging_nodes(tenant)
        return any(
            usage.borrowed(theirs, key) and self._is_larger(theirs, key, self._after[ours.id, key])
            for key in self.keys
        )

    def _is_larger(self, theirs: TreeNode, key: ModelKey, ours: float) -> bool:
        """Tell whether their share is not smaller than ours, or ours is guaranteed."""
        rules = self.quota.rules.preemption
        if rules.reclaim and not ours:
            return True
        is_last = ours == inf  # two tenants of weight 0 would preempt each other in turn
        of_theirs = self.quota.usage.share_of(theirs, key)
        return rules.fair_share and not is_last and ours <= of_theirs + _EQUAL

    def _share_after(self, node: TreeNode, key: ModelKey) -> float:
        """Return the lowest share of a node above the job once it runs on GPUs of this key."""
        if len(self.keys) > 1 and self.job.gang.workers > 1:
            return 0.0  # the gang may be spread over several keys
        charge = {key: min_charge(self.job.gang)}
        if self.may_preempt_own or not node.is_tenant:
            alone = Usage(self.quota.tree)  # as if all other jobs of the node were preempted
            alone.add(self.job.tenant, charge)
            return alone.share_of(node, key)
        with self._with(charge):
            return self.quota.usage.share_of(node, key)

    def may_preempt_job(self, running: RunningJob) -> bool:
        """Tell whether this job of such a tenant can be a victim after its minimum run time."""
        job = running.job
        if job.extends is not None:
            return True
        if not job.preemptible:
            return False
        if job.tenant == self.job.tenant:
            return job.priority < self.job.priority
        return any(running.charge.get(key) for key in self.keys)

    def may_preempt_alone(self, running: RunningJob) -> bool:
        """Tell whether this job alone can be a victim, by the same rule as several together."""
        return self._check_together((running,))

    def may_preempt_together(self, victims: Sequence[RunningJob]) -> bool:
        """Tell whether a set with these victims can be permitted.

        False: neither this set nor a larger one can be. Victims of the own tenant make our share
        smaller, so it is taken at its smallest. Victims below different children of the node where
        their paths part from ours do not change each other's shares.
        """
        together: dict[NodeId, list[RunningJob]] = {}
        for running in victims:
            if running.job.tenant != self.job.tenant:
                _, theirs = self._diverging_nodes(running.job.tenant)
                together.setdefault(theirs.id, []).append(running)
        return all(map(self._check_together, together.values()))

    def _check_together(self, victims: Sequence[RunningJob]) -> bool:
        """Evaluate victims together, once for all sets that are alike in quota usage."""
        key = frozenset(Counter(map(_usage_key, victims)).items())
        known = self._checked.get(key)
        if known is None:
            with self._without(victims):
                known = self._checked[key] = all(map(self._may_be_victim, victims))
        return known

    def max_preemptible(self, running: Sequence[RunningJob], milli: Sequence[int]) -> int:
        """Return the milli-GPU that these jobs may lose together at most.

        Each kind is evaluated as if no jobs of other kinds were preempted.

        Args:
            running: jobs that could be preempted.
            milli: what each of them would lose.
        """
        alike: dict[_UsageKey, list[tuple[int, RunningJob]]] = {}
        for one, lost in zip(running, milli, strict=True):
            alike.setdefault(_usage_key(one), []).append((lost, one))
        return sum(map(self._max_of_kind, alike.values()))

    def _max_of_kind(self, kind: list[tuple[int, RunningJob]]) -> int:
        total, together = 0, list[RunningJob]()
        for lost, one in sorted(kind, key=lambda each: each[0], reverse=True):
            together.append(one)
            if not self.may_preempt_together(together):
                break
            total += lost
        return total

    def _may_be_victim(self, victim: RunningJob) -> bool:
        if victim.job.tenant == self.job.tenant or victim.job.extends is not None:
            return True
        ours, theirs = self._diverging_nodes(victim.job.tenant)
        return any(
            self._borrows_with(victim, theirs, key)
            and self._is_larger(theirs, key, self._after[ours.id, key])
            for key in self.keys
        )

    def frees_quota_for(self, running: RunningJob, keys: frozenset[ModelKey]) -> bool:
        """Tell whether its end can leave the job more quota of these keys, or a smaller share.

        That is so where both count against one node of the tree that guarantees or limits
        something.
        """
        if not any(running.charge.get(key) for key in keys):
            return False
        if running.job.tenant == self.job.tenant:
            return True
        top = self.quota.tree.top
        ours, _ = self._diverging_nodes(running.job.tenant)
        return ours.parent is not top or any(top.guaranteed.get(key, 0) < UNBOUNDED for key in keys)

    def fits_quota_without(
        self, charge: Charge, ended_jobs: Iterable[tuple[RunningJob, int]]
    ) -> bool:
        """Tell whether the quota allows `charge` once these numbers of such jobs have ended."""
        usage = self.quota.usage
        ended = [
            (one.job.tenant, {key: jobs * milli for key, milli in one.charge.items()})
            for one, jobs in ended_jobs
        ]
        for tenant, all_of_kind in ended:
            usage.add(tenant, all_of_kind, sign=-1)
        found = usage.fits(self.job.tenant, charge)
        for tenant, all_of_kind in ended:
            usage.add(tenant, all_of_kind)
        return found

    def allows(self, victims: Sequence[RunningJob], charge: Charge) -> bool:
        """Tell whether the job may take `charge` when all of these victims are preempted."""
        with self._without(victims):
            if not self.quota.usage.fits(self.job.tenant, charge):
                return False
            with self._with(charge):
                return all(self._is_fair(victim, charge) for victim in victims)

    def reason_for(
        self, victim: RunningJob, victims: Sequence[RunningJob], charge: Charge
    ) -> PreemptionReason:
        """Return the policy by which this victim is preempted."""
        if victim.job.extends is not None:
            return PreemptionReason.ELASTIC_SCALE_DOWN
        if victim.job.tenant == self.job.tenant:
            return PreemptionReason.PRIORITY
        ours, _ = self._diverging_nodes(victim.job.tenant)
        with self._without(victims), self._with(charge):
            borrows = any(
                self.quota.usage.share_of(ours, key) for key in _common_keys(victim, charge)
            )
        return (
            PreemptionReason.IN_COHORT_FAIR_SHARING
            if borrows
            else PreemptionReason.IN_COHORT_RECLAMATION
        )

    def _is_fair(self, victim: RunningJob, charge: Charge) -> bool:
        """Tell whether the victim is permitted; the quota usage already includes all changes."""
        if victim.job.tenant == self.job.tenant or victim.job.extends is not None:
            return True
        ours, theirs = self._diverging_nodes(victim.job.tenant)
        keys = _common_keys(victim, charge)
        return bool(keys) and all(
            self._borrows_with(victim, theirs, key)
            and self._is_larger(theirs, key, self.quota.usage.share_of(ours, key))
            for key in keys
        )

    def _borrows_with(self, victim: RunningJob, theirs: TreeNode, key: ModelKey) -> bool:
        """Tell whether theirs would borrow the key if this victim, which holds it, were spared."""
        milli, used = victim.charge.get(key, 0), self.quota.usage.used_by(theirs).get(key, 0)
        return bool(milli) and used + milli > theirs.guaranteed.get(key, 0)

    def _diverging_nodes(self, other: Tenant) -> tuple[TreeNode, TreeNode]:
        """Return our node and theirs, where the paths part."""
        known = self._partings.get(other)
        if known is None:
            known = self._partings[other] = self.quota.tree.diverging_nodes(self.job.tenant, other)
        return known

    @contextmanager
    def _without(self, victims: Iterable[RunningJob]) -> Iterator[None]:
        usage, preempted = self.quota.usage, tuple(victims)
        for running in preempted:
            usage.add(running.job.tenant, running.charge, sign=-1)
        try:
            yield
        finally:
            for running in preempted:
                usage.add(running.job.tenant, running.charge)

    @contextmanager
    def _with(self, charge: Charge) -> Iterator[None]:
        self.quota.usage.add(self.job.tenant, charge)
        try:
            yield
        finally:
            self.quota.usage.add(self.job.tenant, charge, sign=-1)


def _usage_key(running: RunningJob) -> _UsageKey:
    return running.job.tenant, frozenset(running.charge.items())


def _common_keys(victim: RunningJob, charge: Charge) -> list[ModelKey]:
    """Return the keys that the victim holds and the job takes."""
    return [key for key, milli in victim.charge.items() if milli and charge.get(key)]
