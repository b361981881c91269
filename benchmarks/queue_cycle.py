# SPDX-License-Identifier: Apache-2.0
"""Measures a cycle of the queue: 10,000 pending jobs in 200 classes, 5,000 nodes of 8 GPUs.

The cluster is full, divided equally among 50 tenants with 4 kinds of pending request each, and
every fifth tenant has a quota. Jobs end in the order of their deadlines. Figures are milliseconds
of CPU time. After each of --ends ends: the first cycle, each cycle that follows until nothing is
due, and one without a change. And the first cycle after a job was submitted in an existing or in a
new class, after a node failed or was repaired, and after other quotas were configured (including
the configuration).

With `--consolidation` all jobs are movable, only jobs that need whole nodes are pending, and others
are moved for them if that costs less than so many GPU-hours per GPU-hour gained.

    python benchmarks/queue_cycle.py [--ends 200] [--changes 20] [--nodes 5000] [--jobs 10000]
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from random import Random
from time import process_time

from gpupack_placement import (
    Cluster,
    Device,
    DeviceUuid,
    Gang,
    Health,
    MiB,
    MilliCpu,
    MilliGpu,
    Node,
    NodeName,
    Placement,
    Request,
    Share,
    choose,
    choose_gang,
    policy_named,
)
from gpupack_queue import (
    ANY,
    ConsolidationRules,
    Decisions,
    Job,
    JobId,
    Limit,
    Planner,
    Queue,
    Quota,
    Quotas,
    Rules,
    Tenant,
    holder_name,
)

GPUS = 8
TENANTS = 50
PROMISED = 20_000
"""Quota of every fifth tenant in milli-GPU."""
KINDS = (
    Gang.of(1, Request(gpus=1, cpu=MilliCpu(4000))),
    Gang.of(1, Request(gpus=8, cpu=MilliCpu(32_000))),
    Gang.of(4, Request(gpus=8, cpu=MilliCpu(32_000))),
    Gang.of(1, Request(share=Share(MilliGpu(500), MiB(30_000)), cpu=MilliCpu(2000))),
)


def nodes(count: int) -> list[Node]:
    """Return equal nodes."""
    return [
        Node(
            NodeName(f"node-{n}"),
            tuple(Device(DeviceUuid(f"node-{n}/{g}"), g, "H100", MiB(81_920)) for g in range(GPUS)),
            MilliCpu(128_000),
            MiB(1 << 20),
        )
        for n in range(count)
    ]


def planner(name: str) -> Planner:
    """Return a planner with one policy."""
    policy = policy_named(name)

    def plan(cluster: Cluster, job: Job) -> tuple[Placement, ...] | None:
        if job.gang.workers > 1:
            return choose_gang(cluster, job.gang, policy)
        placement = choose(cluster, job.gang.roles[0].request, policy)
        return None if placement is None else (placement,)

    return plan


class Owner:
    """Carries out the queue's decisions at once."""

    def __init__(self, cluster: Cluster, queue: Queue, plan: Planner) -> None:
        self.cluster, self.queue, self.plan = cluster, queue, plan
        self.jobs: dict[JobId, Job] = {}
        self.running: dict[JobId, tuple[Placement, ...]] = {}
        self.ends: dict[JobId, float] = {}
        self.moved = 0

    def submit(self, job: Job, now: float) -> None:
        """Submit a job."""
        self.jobs[job.id] = job
        self.queue.submit(job, now)

    def apply(self, decisions: Decisions, now: float) -> None:
        """Carry out decisions; victims end at once and are pending again."""
        for admit in decisions.admitted:
            for worker, placement in enumerate(admit.placements):
                self.cluster.take(holder_name(admit.job, worker), placement)
            self.queue.start(self.jobs[admit.job], admit.placements, self.cluster, now)
            self.running[admit.job] = admit.placements
            self.ends[admit.job] = self.jobs[admit.job].latest_end(now)
        for preempt in decisions.preemptions:
            self.queue.reserve(preempt, self.cluster, now)
            for victim in preempt.victims:
                self._stop(victim.job, now)
        for each in decisions.consolidations:
            self.moved += len(each.moves)
            self.queue.consolidate(each, self.cluster, now)
            for move in each.moves:
                self._stop(move.job, now)

    def _stop(self, job: JobId, now: float) -> None:
        self.end(job, now)
        self.queue.submit(self.jobs[job], now)

    def end(self, job: JobId, now: float) -> None:
        """End a job."""
        for worker in range(len(self.running.pop(job))):
            self.cluster.give_back(holder_name(job, worker))
        self.queue.end(job, self.cluster, now)

    def change(self, node: Node) -> None:
        """Change the state of a node."""
        self.cluster.set_node(node)
        self.queue.record_node_change(node.name, self.cluster)

    def settle(self, now: float) -> list[float]:
        """Run cycles until nothing is due; return the milliseconds of each."""
        costs = []
        while True:
            decisions, cost = self.ask(now)
            costs.append(cost)
            self.apply(decisions, now)
            if not decisions and (decisions.due_at is None or decisions.due_at > now):
                return costs

    def ask(self, now: float) -> tuple[Decisions, float]:
        """Run one cycle; return its decisions and milliseconds."""
        begun = process_time()
        decisions = self.queue.cycle(self.cluster, now, self.plan)
        return decisions, 1000 * (process_time() - begun)


def quotas(milli: int) -> Quotas:
    """Return quotas of so many milli-GPU for every fifth tenant."""
    promised = {ANY: Limit(milli)}
    return Quotas(tuple(Quota(Tenant(f"t{n}"), promised) for n in range(0, TENANTS, 5)))


def world(node_count: int, job_count: int, policy: str, consolidation: float) -> Owner:
    """Return a full cluster with so many pending jobs."""
    random = Random(1)  # noqa: S311  # not for secrets
    movable = consolidation > 0
    moves = ConsolidationRules(ratio=consolidation, cooldown_seconds=600.0)
    queue = Queue(Rules(consolidation=moves), quotas(PROMISED))
    owner = Owner(Cluster(nodes(node_count)), queue, planner(policy))
    kinds = [(Tenant(f"t{n}"), gang) for n in range(TENANTS) for gang in KINDS]
    filled = 0
    while filled < node_count * GPUS * 1000:
        number = len(owner.jobs)
        tenant, gang = kinds[number % len(kinds)]
        duration = 1000 + random.expovariate(1 / 7200)
        job = Job(JobId(f"run-{number}"), gang, 0.0, tenant, duration=duration, movable=movable)
        places = owner.plan(owner.cluster, job)
        if places is None:
            break
        for worker, placement in enumerate(places):
            owner.cluster.take(holder_name(job.id, worker), placement)
        owner.jobs[job.id] = job
        owner.queue.start(job, places, owner.cluster, 0.0)
        owner.ends[job.id] = duration
        owner.running[job.id] = places
        filled += gang.workers * gang.roles[0].request.milli
    if movable:
        kinds = [(tenant, gang) for tenant, gang in kinds if gang.roles[0].request.gpus == GPUS]
    for number in range(job_count):
        tenant, gang = kinds[number % len(kinds)]
        job = Job(JobId(f"wait-{number}"), gang, float(number), tenant, duration=3600.0)
        owner.submit(replace(job, movable=movable), 0.0)
    return owner


def changes(owner: Owner, number: int, now: float) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield changes one after the other; `number` is the round."""
    tenant, gang = Tenant(f"t{number % TENANTS}"), KINDS[number % len(KINDS)]
    job = Job(JobId(f"more-{number}"), gang, now, tenant, duration=3600.0)
    yield "after a submit in a class", lambda: owner.submit(job, now)
    new = Gang.of(1, Request(gpus=1 + number % GPUS, cpu=MilliCpu(1000 + number)))
    other = Job(JobId(f"other-{number}"), new, now, tenant, duration=3600.0)
    yield "after a submit in a new class", lambda: owner.submit(other, now)
    node = owner.cluster.nodes()[number]
    sick = (replace(node.devices[0], health=Health.FAILED), *node.devices[1:])
    for what, then in (("failed", replace(node, devices=sick)), ("was repaired", node)):
        yield f"after a node {what}", partial(owner.change, then)
    other_quotas = quotas(PROMISED + (number % 2) * 1000)
    yield "after other quotas", lambda: owner.queue.configure(other_quotas, owner.cluster, now)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ends", type=int, default=200)
    parser.add_argument("--changes", type=int, default=20)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--policy", default="best-fit")
    parser.add_argument("--consolidation", type=float, default=0.0, metavar="RATIO")
    given = parser.parse_args()
    owner = world(given.nodes, given.jobs, given.policy, given.consolidation)
    now = 1000.0
    print(f"{len(owner.running)} run, {len(owner.queue)} wait")
    print(f"first: {sum(owner.settle(now)):.0f} ms until nothing more is due")
    table: dict[str, list[float]] = {}
    for _ in range(given.ends):
        now, first = min((owner.ends[job], job) for job in owner.running)
        owner.end(first, now)
        costs = owner.settle(now)
        table.setdefault("after an end", []).append(costs[0])
        table.setdefault("each that follows", []).extend(costs[1:])
        table.setdefault("until nothing is due", []).append(sum(costs))
        table.setdefault("after nothing", []).append(owner.ask(now)[1])
    for number in range(given.changes):
        for what, change in changes(owner, number, now):
            begun = process_time()
            change()
            took = 1000 * (process_time() - begun)
            costs = owner.settle(now)
            table.setdefault(what, []).append(took + costs[0])
    if given.consolidation:
        print(f"{owner.moved} jobs were moved")
    for name, figures in ((name, sorted(found)) for name, found in table.items() if found):
        middle, high = figures[len(figures) // 2], figures[int(len(figures) * 0.99)]
        print(f"{name}: median {middle:.2f} ms, p99 {high:.2f}, largest {figures[-1]:.2f}")


if __name__ == "__main__":
    main()
