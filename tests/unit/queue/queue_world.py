# SPDX-License-Identifier: Apache-2.0
"""A cluster with a queue: a test reads as nodes, quotas, jobs, placements and reasons to wait.

Victims end `grace` seconds after they are preempted; with 0, at once. The queue knows that, unless
`grace_is_known` is false or the grace period is without end.
"""

from dataclasses import replace
from math import inf

from placement_builders import FIRST_FIT

from gpupack_placement import (
    Cluster,
    DeviceUuid,
    Gang,
    Grant,
    Health,
    MilliGpu,
    NodeName,
    Placement,
    Request,
    Role,
    Spread,
)
from gpupack_queue import (
    Cohort,
    CohortName,
    Job,
    JobId,
    Limit,
    ModelKey,
    PreemptionRules,
    Queue,
    Quota,
    Quotas,
    ReservationId,
    Rules,
    Tenant,
    Window,
    extra_worker,
    holder_name,
    place_by_policy,
)

AT_ONCE = PreemptionRules(min_runtime_seconds=0, retry_seconds=0, max_searches_per_cycle=100)
PATIENT = Rules(preemption=AT_ONCE)


def limit(nominal=0, *, lending=None, borrowing=None):
    """In GPUs."""
    milli = [None if of is None else round(of * 1000) for of in (nominal, lending, borrowing)]
    return Limit(*milli)


def limits(gpus=None, **of_models):
    """A number of GPUs of any model, or a Limit; by model with keywords."""
    given = {} if gpus is None else {"": gpus}
    return {
        ModelKey(key): of if isinstance(of, Limit) else limit(of)
        for key, of in (given | of_models).items()
    }


def quota(tenant, gpus=None, *, cohort="", weight=1.0, **of_models):
    return Quota(Tenant(tenant), limits(gpus, **of_models), CohortName(cohort), weight)


def cohort(
    name, gpus=None, *, parent="", weight=1.0, order=None, min_runtime_seconds=None, **of_models
):
    return Cohort(
        CohortName(name),
        CohortName(parent),
        limits(gpus, **of_models),
        weight,
        order,
        min_runtime_seconds,
    )


def gang_of(roles, spread=None):
    """Each role: its name, its workers, and a Request or a number of GPUs."""
    made = [
        Role(name, workers, asked if isinstance(asked, Request) else Request(gpus=asked))
        for name, workers, asked in roles
    ]
    return Gang(tuple(made), spread or Spread())


def window(name, gpus, start, end, *, units=1, model=(), declared=0.0):
    """A window of reservation «tenant/name»: so many units of so many GPUs."""
    tenant = Tenant(name.partition("/")[0])
    asked = Request(gpus=gpus, models=model)
    return Window(ReservationId(name), tenant, units, asked, start, end, declared)


class World:
    """Mutable. `log`: what was decided, in order."""

    def __init__(
        self,
        *nodes,
        quotas=(),
        cohorts=(),
        default=None,
        rules=PATIENT,
        grace=0.0,
        grace_is_known=True,
    ):
        self.cluster = Cluster(nodes)
        more = {} if default is None else {"default": default}
        self.queue = Queue(rules, Quotas(tuple(quotas), tuple(cohorts), **more))
        self.now, self.grace = 0.0, grace
        self.known_grace = grace if grace_is_known and grace < inf else 0.0
        self.jobs, self.running, self.ending, self.log = {}, {}, {}, []
        self.consolidations = []
        self.kept = {}
        """New places of moved jobs."""

    def __repr__(self):
        nodes = [(node.name, len(node.devices)) for node in self.cluster.nodes()]
        return f"{nodes} {self.queue.state.quota.quotas} {self.queue.rules}"

    def submit(
        self, name, gpus=1, tenant="", *, workers=1, spread=None, request=None, roles=(), **kw
    ):
        """`roles`: name, workers and GPUs of each, for a gang of several roles."""
        asked = Request(gpus=gpus) if request is None else request
        limits = Spread() if spread is None else spread
        gang = gang_of(roles, limits) if roles else Gang.of(workers, asked, limits)
        kw = {"number": len(self.jobs), "grace_seconds": self.known_grace} | kw
        job = Job(JobId(name), gang, self.now, Tenant(tenant), **kw)
        self.jobs[name] = job
        self.queue.submit(job, self.now)
        return self

    def runs(self, name, on, tenant="", *, milli=1000, memory=80_000, **kw):
        """It runs already: «n1/0 n1/1 n2/0», a worker for each node, all of as many GPUs."""
        by_node = {}
        for uuid in on.split():
            grant = Grant(DeviceUuid(uuid), MilliGpu(milli), memory)
            by_node.setdefault(uuid.partition("/")[0], []).append(grant)
        places = tuple(Placement(NodeName(n), tuple(grants)) for n, grants in by_node.items())
        gpus = len(on.split()) // len(places)
        asked = Request(gpus=gpus)
        gang = Gang.of(len(places), asked)
        kw = {"number": len(self.jobs), "grace_seconds": self.known_grace} | kw
        self.jobs[name] = Job(JobId(name), gang, self.now, Tenant(tenant), **kw)
        self._start(name, places)
        return self

    def _start(self, name, places):
        for worker, placement in enumerate(places):
            self.cluster.take(holder_name(name, worker), placement)
        if name not in self.jobs:
            gang, _, number = name.rpartition("+")
            self.jobs[name] = extra_worker(self.jobs[gang], int(number))
        self.queue.start(self.jobs[name], places, self.cluster, self.now)
        self.running[name] = places

    def reserve(self, *windows):
        """Set the windows of all reservations."""
        self.windows = list(windows)
        self.queue.set_windows(self.windows)
        return self

    def reports(self):
        """Window reports by reservation."""
        found = self.queue.window_reports(self.cluster, self.now, self.plan)
        return {str(each.window.reservation): each for each in found}

    def maintain(self, *uuids, drain=True):
        """These devices, and no others, are in maintenance; `drain`: and to be left."""
        by_node = {}
        for node in self.cluster.nodes():
            devices = [
                replace(
                    device,
                    health=Health.MAINTENANCE if device.uuid in uuids else Health.HEALTHY,
                )
                for device in node.devices
            ]
            by_node[node.name] = frozenset(d.uuid for d in devices if d.uuid in uuids)
            self.cluster.set_node(replace(node, devices=tuple(devices)))
            self.queue.record_node_change(node.name, self.cluster)
        self.queue.drain({n: devices for n, devices in by_node.items() if devices and drain})
        return self

    def end(self, name):
        self._stop(name)
        return self

    def _stop(self, name):
        for extra in sorted(self.queue.state.elastic.extra_workers_of(JobId(name))):
            self._stop(extra)
        for worker in range(len(self.running[name])):
            self.cluster.give_back(holder_name(name, worker))
        del self.running[name]
        self.ending.pop(name, None)
        self.queue.end(JobId(name), self.cluster, self.now)

    def plan(self, cluster, job):
        return place_by_policy(FIRST_FIT, cluster, job)

    def decide(self, *, at=None):
        """All that is decided until nothing more is, at this time."""
        self.now = self.now if at is None else at
        for name in [name for name, when in self.ending.items() if when <= self.now]:
            if name in self.running:
                self._requeue(name)
        for _ in range(1000):
            found = self.queue.cycle(self.cluster, self.now, self.plan)
            is_due = found.due_at is not None and found.due_at <= self.now
            if not found and not is_due:
                self.due_at = found.due_at
                return self
            self._apply(found)
        recent = "; ".join(self.log[-12:])
        raise AssertionError(f"the queue never comes to rest: {recent}")

    def _apply(self, found):
        for admit in found.admitted:
            self.log.append(f"{admit.job} starts")
            self._start(admit.job, admit.placements)
        for preempt in found.preemptions:
            victims = " ".join(sorted(victim.job for victim in preempt.victims))
            self.log.append(f"{preempt.job} stops {victims}")
            self.queue.reserve(preempt, self.cluster, self.now)
            for victim in preempt.victims:
                if self.grace:
                    self.ending.setdefault(victim.job, self.now + self.grace)
                elif victim.job in self.running:
                    self._requeue(victim.job)
        for each in found.for_windows:
            self._apply_for_window(each)
        self._apply_moves(found)
        for cancelled in found.cancelled:
            self.log.append(f"{cancelled.job} gives up")
            self.queue.release(cancelled.job, self.cluster, stuck=cancelled.stuck)

    def _apply_for_window(self, decision):
        victims = sorted(victim.job for victim in decision.victims)
        self.log.append(f"{decision.reservation} stops {' '.join(victims)}")
        self.queue.reserve_for_window(decision, self.now)
        for victim in victims:
            if self.grace:
                self.ending.setdefault(victim, self.now + self.grace)
            elif victim in self.running:
                self._requeue(victim)

    def _apply_moves(self, found):
        moves = list(found.moves)
        for each in found.consolidations:
            victims = " ".join(sorted(victim.job for victim in each.preempt.victims))
            self.log.append(f"{each.preempt.job} moves {victims}")
            self.consolidations.append(each)
            self.queue.consolidate(each, self.cluster, self.now)
            moves += each.moves
        for move in found.moves:
            self.log.append(f"{move.job} moves")
            self.queue.reserve_for_move(
                self.jobs[move.job], move.placements, self.cluster, self.now
            )
        for move in moves:
            self.kept[move.job] = move.placements
            if self.grace:
                self.ending.setdefault(move.job, self.now + self.grace)
            else:
                self._requeue(move.job)

    def _requeue(self, name):
        self._stop(name)
        if self.jobs[name].extends is None:
            self.queue.submit(self.jobs[name], self.now)

    @property
    def where(self):
        """Job → «n1/0 n1/1»."""
        return {
            str(name): " ".join(g.uuid for p in places for g in p.devices)
            for name, places in sorted(self.running.items())
        }

    def explain(self, name):
        return self.queue.explain(JobId(name), self.cluster, self.now, self.plan)


def with_rules(**kw):
    return replace(PATIENT, **kw)


def used(world):
    """Counted recounted from what runs: milli-GPU by tenant and key."""
    found = {}
    for name, places in world.running.items():
        charge = world.queue.state.quota.charge(world.cluster, places)
        tenant = found.setdefault(world.jobs[name].tenant, {})
        for key, milli in charge.items():
            tenant[key] = tenant.get(key, 0) + milli
    return found


def within_limits(world, usage):
    """By the definition, node by node: what exceeds the promise is within the borrowing limit, and
    what was never lent is not used by others."""
    quota = world.queue.state.quota
    for leaf in quota.tree.all():
        for key in quota.keys.all():
            borrowing = leaf.limit(key).borrowing
            if borrowing is not None:
                assert usage.borrowed(leaf, key) <= borrowing
    for key in quota.keys.all():
        assert usage.available(quota.tree.top, key) >= 0
