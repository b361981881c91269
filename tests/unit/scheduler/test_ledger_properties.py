# SPDX-License-Identifier: Apache-2.0
"""Whatever happens in whatever order: no GPU is held beyond what it has, and the ledger can be
rebuilt.

The model is an API server whose watch events arrive late, an operator, a kube-scheduler whose
Bindings get lost or arrive late, nodes whose processes outlive their pods, and an extender that is
killed and rebuilds itself. Nodes a and b are our own, x is observed.

GPUPACK_TEST_CASES sets how many runs there are (60; run thousands after a change).
"""

import collections
import contextlib
import datetime as dt
import itertools
import math
import os

import hypothesis.strategies as st
import msgspec
from extender_builders import (
    MEMORY_MIB,
    OBSERVED,
    OTHER,
    World,
    as_bound,
    gpu_node,
    job,
    observed_node,
    plan_request,
    pod,
    share_limits,
)
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gpupack_crds.devices import decode_devices
from gpupack_crds.names import DEVICES_ANNOTATION, GPU, SHARE_SLOTS_PER_GPU
from gpupack_crds.plan import PlanResponse
from gpupack_crds.worker_pods import pods_of
from gpupack_extender.binding import judge
from gpupack_extender.unconfirmed_writes import GIVE_UP_SECONDS, judge_plan
from gpupack_scheduler.errors import BindRefused, NotReady
from gpupack_scheduler.ledger import claims
from gpupack_scheduler.ledger.ledger import Outcome
from gpupack_scheduler.ledger.placed_job import PlacedAttempt

JOBS = st.sampled_from(
    ["whole-1", "whole-2", "share-1", "share-2", "observed-1", "other-1", "gang-1"]
)
"""By their names: a gang has three workers, which share pods."""
NODES = st.sampled_from(["a", "b", "x"])
SHARES = st.sampled_from([(30, "8Gi"), (60, "20Gi"), (10, "60Gi")])
PICK = st.integers(0, 1000)
KINDS = st.sampled_from(["pods", "jobs"])
REQUEST_SECONDS = 60
"""The API server ends a request by then."""


def pick(items, number):
    return sorted(items)[number % len(items)]


@st.composite
def limits(draw):
    """What a pod of its own asks for."""
    kind = draw(st.sampled_from([GPU, "share", "share", OBSERVED, OTHER]))
    if kind == "share":
        return share_limits(*draw(SHARES))
    return {kind: str(draw(st.integers(1, 4)))}


def spec_of(name, gpus, share):
    """What a job of this name asks for."""
    if name.startswith("share"):
        percent, memory = share
        return {"share": {"percent": percent, "memory": memory}}
    if name.startswith("gang"):
        return {"gpus": 1, "workers": 3}
    resource = {"observed": OBSERVED, "other": OTHER}.get(name.partition("-")[0], GPU)
    return {"gpus": gpus, "resourceName": resource}


def limits_of(spec):
    if "share" in spec:
        return share_limits(**spec["share"])
    return {spec.get("resourceName", GPU): str(spec["gpus"])}


def devices_of(held):
    """The devices of a pod's annotation."""
    annotation = held.metadata.annotations.get(DEVICES_ANNOTATION)
    return decode_devices(annotation) if annotation else ()


def check_fits(shares):
    """All that holds one GPU fits on it, and whole and shared do not mix."""
    assert sum(each.percent for each in shares) <= 100
    assert sum(each.memory_mib for each in shares) <= MEMORY_MIB
    assert len(shares) <= SHARE_SLOTS_PER_GPU


class Cluster(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.world = World(observed=(OBSERVED, OTHER))
        self.world.add_node("a")
        self.world.add_node("b")
        self.world.add_node_of_two("x")
        self.pods, self.jobs, self.plans = {}, {}, {}
        self.specs = {}
        self.failed = ()
        self.processes = {}
        self.reported = {}
        self.events = {"pods": collections.deque(), "jobs": collections.deque()}
        self.on_the_way = {}
        self.lists_at = 0.0
        self.serial = itertools.count()

    # The API server

    def write(self, kind, key, item):
        before = getattr(self, kind).pop(key, None)
        if item is not None:
            version = str(next(self.serial))
            metadata = msgspec.structs.replace(item.metadata, resource_version=version)
            item = msgspec.structs.replace(item, metadata=metadata)
            getattr(self, kind)[key] = item
            self.events[kind].append(("upsert", item))
        else:
            self.events[kind].append(("remove", before))

    def deliver(self, kind):
        event, item = self.events[kind].popleft()
        getattr(getattr(self.world.ledger, kind), event)(item)

    def land(self, uid):
        """The Binding arrives; the API server takes it only for a pod that can be bound."""
        claim = self.on_the_way.pop(uid)
        target = self.pods.get(uid)
        if target is None or target.spec.node_name or target.finished:
            return
        self.write("pods", uid, as_bound(target, claim))

    @rule(kind=KINDS)
    def a_watch_event_arrives(self, kind):
        if self.events[kind]:
            self.deliver(kind)

    @rule(kind=KINDS)
    def a_watch_lists_again(self, kind):
        self.events[kind].clear()
        getattr(self.world.ledger, kind).replace(list(getattr(self, kind).values()))

    @rule(number=PICK)
    def a_gpu_fails_or_recovers(self, number):
        self.failed = [number % 4] if number % 3 else []
        self.report("a")

    @rule(number=st.integers(2, 5))
    def the_other_plugin_hands_out_more_or_fewer(self, number):
        self.world.ledger.nodes.upsert(observed_node("x", gpus=number))

    # The agents

    def report(self, name):
        """A GPUNode as its agent writes it: with those that are gone and still run."""
        gone = {uid: held for uid, held in self.processes.items() if uid not in self.pods}
        self.reported[name] = {uid: held for uid, (node, held) in gone.items() if node == name}
        names = {uid.removeprefix("uid-"): held for uid, held in self.reported[name].items()}
        failed = self.failed if name == "a" else ()
        self.world.ledger.gpus.upsert(gpu_node(name, failed=failed, lingering=names))

    @rule(name=st.sampled_from(["a", "b"]))
    def an_agent_reports(self, name):
        self.report(name)

    @precondition(lambda self: self.bound())
    @rule(number=PICK, reported=st.booleans())
    def a_pod_is_deleted_by_force(self, number, reported):
        uid = pick(self.bound(), number)
        gone = self.pods[uid]
        self.processes[uid] = (gone.spec.node_name, devices_of(gone))
        self.write("pods", uid, None)
        if reported and gone.spec.node_name != "x":
            self.report(gone.spec.node_name)

    @precondition(lambda self: self.processes)
    @rule(number=PICK)
    def the_processes_of_a_deleted_pod_end(self, number):
        del self.processes[pick(self.processes, number)]

    @rule(seconds=st.sampled_from([1, 6, 11, 31]), lags=st.booleans())
    def time_passes(self, seconds, lags):
        """The watch of GPUJobs may lag for longer than a plan is held."""
        self.world.now += seconds
        while self.events["jobs"] and not lags:
            self.deliver("jobs")
        if self.world.now >= self.lists_at:
            self.lists_at = math.inf
            self.a_watch_lists_again("jobs")

    # The operator

    @rule(name=JOBS, gpus=st.integers(1, 3), share=SHARES)
    def a_job_is_planned(self, name, gpus, share):
        if f"uid-{name}" not in self.jobs:
            self.specs[name] = spec_of(name, gpus, share)
            self.write("jobs", f"uid-{name}", job(name, **self.specs[name]))
        current = self.jobs[f"uid-{name}"]
        if current.status.phase == "Admitted" or self.world.now < self.world.decides_from:
            return
        version = current.metadata.resource_version
        attempt = current.status.attempt + 1
        asked = plan_request(name, attempt=attempt, version=version, **self.specs[name])
        plan = self.world.plan(asked)
        if isinstance(plan, PlanResponse):
            self.plans[name] = (plan, asked, self.world.now + plan.expires_seconds)
            table = self.world.ledger.claims
            for worker in table.workers_of(current.metadata.uid):
                if table.workers[worker].state is claims.State.PLANNED:
                    self.check_decided(table.workers[worker].allocation)

    @rule(name=JOBS)
    def a_plan_is_written(self, name):
        """The write is sent in time; it may arrive within the API server's minute."""
        plan, asked, until = self.plans.pop(name, (None, None, 0.0))
        current = self.jobs.get(f"uid-{name}")
        if plan is None or current is None or self.world.now >= until + REQUEST_SECONDS:
            return
        if asked.resource_version == current.metadata.resource_version:
            self.set_status(current, asked.attempt, "Admitted", plan.placement)

    @rule(name=JOBS)
    def an_attempt_ends(self, name):
        current = self.jobs.get(f"uid-{name}")
        if current is not None and current.status.phase == "Admitted":
            self.set_status(current, current.status.attempt, "Pending", ())

    @rule(name=JOBS)
    def a_job_is_deleted(self, name):
        if f"uid-{name}" in self.jobs:
            self.write("jobs", f"uid-{name}", None)

    def set_status(self, current, attempt, phase, placement):
        ended = None if phase == "Admitted" else dt.datetime.fromtimestamp(self.world.now, dt.UTC)
        shares = current.metadata.name.startswith("gang")
        entry = PlacedAttempt(number=attempt, finished_at=ended, shares_pods=shares)
        status = msgspec.structs.replace(
            current.status, attempt=attempt, phase=phase, placement=placement, attempts=(entry,)
        )
        self.write("jobs", current.metadata.uid, msgspec.structs.replace(current, status=status))

    # Pods

    @rule(name=JOBS, number=PICK)
    def a_workers_pod_is_made(self, name, number):
        current = self.jobs.get(f"uid-{name}")
        if current is not None and current.status.phase == "Admitted":
            pods = pods_of(current.status, least=current.spec.least)
            chosen = pods[number % len(pods)]
            made = pod(
                f"{name}-{next(self.serial)}",
                asking=[limits_of(self.specs[name])] * len(chosen.workers),
                worker=(name, current.status.attempt, chosen.index),
            )
            self.write("pods", made.metadata.uid, made)

    @rule(asking=limits())
    def a_plain_pod_is_made(self, asking):
        made = pod(f"plain-{next(self.serial)}", asking=asking)
        self.write("pods", made.metadata.uid, made)

    @rule(node=st.sampled_from(["a", "b"]))
    def a_crowd_of_small_shares_is_bound(self, node):
        for _ in range(12):
            made = pod(f"crowd-{next(self.serial)}", cpu="0", asking=share_limits(1, "1Mi"))
            self.write("pods", made.metadata.uid, made)
            self.bind(made.metadata.uid, node, "lands")

    @rule(asking=limits(), node=NODES)
    def a_pod_is_bound_by_another_scheduler(self, asking, node):
        made = pod(f"foreign-{next(self.serial)}", asking=asking, on=node)
        self.write("pods", made.metadata.uid, made)

    @precondition(lambda self: self.pods)
    @rule(number=PICK, gone=st.booleans())
    def a_pod_ends(self, number, gone):
        uid = pick(self.pods, number)
        ended = self.pods[uid]
        status = msgspec.structs.replace(ended.status, phase="Succeeded")
        done = msgspec.structs.replace(ended, status=status)
        self.write("pods", uid, None if gone else done)

    # kube-scheduler

    def unbound(self):
        return [u for u, p in self.pods.items() if not p.spec.node_name and not p.finished]

    def bound(self):
        return [u for u, p in self.pods.items() if p.spec.node_name and not p.finished]

    @precondition(lambda self: self.unbound())
    @rule(number=PICK, nodes=st.sampled_from([("a", "b", "x"), ("a",), ("b",), ("x",)]))
    def a_pod_is_filtered(self, number, nodes):
        uid = pick(self.unbound(), number)
        with contextlib.suppress(NotReady):
            self.world.filter(self.pods[uid], nodes=nodes)
        claim = self.world.ledger.claims.pods.get(uid)
        if claim is not None and claim.state is claims.State.ASSUMED and not claim.worker:
            self.check_decided(claim.allocation)

    @precondition(lambda self: self.unbound())
    @rule(
        number=PICK,
        node=NODES,
        fate=st.sampled_from(["lands", "reply lost", "late", "refused"]),
    )
    def a_pod_is_bound(self, number, node, fate):
        self.bind(pick(self.unbound(), number), node, fate)

    def bind(self, uid, node, fate):
        if uid in self.on_the_way:
            return
        try:
            claim = self.world.reserve(self.pods[uid], node)
        except (BindRefused, NotReady):
            return
        if claim.state is not claims.State.BINDING:
            return
        self.check_decided(claim.allocation)
        self.on_the_way[uid] = claim
        outcome = Outcome.NOT_LANDED
        if fate == "refused" and not claim.may_have_landed:
            del self.on_the_way[uid]
        elif fate == "lands":
            self.land(uid)
            outcome = judge(self.pods.get(uid), claim, may_have_landed=True)
        else:
            outcome = Outcome.UNKNOWN
        self.world.ledger.end_bind(uid, outcome)
        if fate == "reply lost":
            self.land(uid)

    @precondition(lambda self: self.on_the_way)
    @rule(number=PICK)
    def a_late_binding_arrives(self, number):
        self.land(pick(self.on_the_way, number))

    @rule()
    def unconfirmed_binds_are_asked_about(self):
        for claim in self.world.ledger.unconfirmed(older_than_seconds=5):
            outcome = judge(self.pods.get(claim.uid), claim, may_have_landed=True)
            self.world.ledger.settle(claim, outcome)

    @rule()
    def overdue_plans_are_asked_about(self):
        ledger = self.world.ledger
        for plan in ledger.overdue_plans():
            may_land = ledger.age_seconds(plan[0]) <= GIVE_UP_SECONDS
            now = self.jobs.get(plan[0].worker.attempt.job_uid)
            ledger.settle_plan(plan, judge_plan(now, plan, may_land=may_land))

    # The extender

    @rule()
    def the_extender_is_killed(self):
        """What it had on the way has long arrived when it has listed everything."""
        for uid in list(self.on_the_way):
            self.land(uid)
        settled = self.world.now + self.world.decisions.plan_hold_seconds
        self.plans = {
            name: (plan, asked, min(until, settled - REQUEST_SECONDS))
            for name, (plan, asked, until) in self.plans.items()
        }
        self.world.use(self.fresh_ledger())
        for queue in self.events.values():
            queue.clear()
        self.world.decides_from = self.lists_at = settled

    def fresh_ledger(self):
        fresh = self.world.new_ledger()
        old = self.world.ledger
        fresh.nodes.replace(list(old.nodes.items.values()))
        fresh.gpus.replace(list(old.gpus.items.values()))
        fresh.pods.replace(list(self.pods.values()))
        fresh.jobs.replace(list(self.jobs.values()))
        return fresh

    # What must hold

    def check_decided(self, allocation):
        """Check that the GPUs that the ledger has just assigned were free, as far as it knew."""
        for grant in allocation.placement.devices:
            check_fits([each for each in self.known_holdings() if each.uuid == grant.uuid])
        for resource in allocation.tokens:
            devices = self.world.ledger.cluster.node(allocation.node).devices
            there = sum(device.resource == resource for device in devices)
            assert self.known_tickets(allocation.node, resource) <= there

    def known_holdings(self):
        """Devices of pods, of workers without a pod, and of what agents say lingers."""
        table = self.world.ledger.claims
        for claim in table.pods.values():
            yield from claims.shares(claim.placement)
        for claim in self.podless_workers():
            yield from claims.shares(claim.placement)
        for held in self.reported.values():
            for uid, shares in held.items():
                if uid not in table.pods:
                    yield from shares

    def known_tickets(self, node, resource):
        table = self.world.ledger.claims
        held = [c.allocation for c in (*table.pods.values(), *self.podless_workers())]
        return sum(
            allocation.tokens.get(resource, 0) for allocation in held if allocation.node == node
        )

    def podless_workers(self):
        table = self.world.ledger.claims
        return [claim for claim in table.workers.values() if not table.pods_of(claim.pod)]

    @invariant()
    def no_gpu_is_bound_beyond_what_it_has(self):
        held = collections.defaultdict(list)
        for uid in self.bound():
            for share in devices_of(self.pods[uid]):
                held[share.uuid].append(share)
        for shares in held.values():
            check_fits(shares)

    @invariant()
    def no_gpu_is_held_beyond_what_it_has(self):
        table = self.world.ledger.claims
        assert table.contradictions == 0
        for claim in table.pods.values():
            for share in claims.shares(claim.placement):
                check_fits([e for e in self.known_claims() if e.uuid == share.uuid])

    def known_claims(self):
        """As known holdings, without what lingers: an agent may report that too late."""
        table = self.world.ledger.claims
        for claim in (*table.pods.values(), *self.podless_workers()):
            yield from claims.shares(claim.placement)

    def teardown(self):
        """Once all is known, the ledger equals one built from the API server's objects."""
        for uid in list(self.on_the_way):
            self.land(uid)
        for kind in self.events:
            while self.events[kind]:
                self.deliver(kind)
        self.world.now += 1000
        self.world.ledger.expire()
        self.overdue_plans_are_asked_about()
        self.unconfirmed_binds_are_asked_about()
        for uid in list(self.world.ledger.claims.pods):
            self.world.ledger.settle(self.world.ledger.claims.pods[uid], Outcome.UNKNOWN)
        assert holdings(self.world.ledger) == holdings(self.fresh_ledger())


def holdings(ledger):
    """GPUs by holder. CPU is left out: a GPUJob's status does not tell what its plan counted."""
    table = ledger.claims
    holders = [claims.shares(c.placement) for c in table.pods.values()]
    free = {node.name: ledger.cluster.free_devices(node.name) for node in ledger.cluster.nodes()}
    return sorted(table.pods), sorted(map(str, table.workers)), sorted(map(str, holders)), free


Cluster.TestCase.settings = settings(
    max_examples=int(os.environ.get("GPUPACK_TEST_CASES", "60")),
    stateful_step_count=40,
    deadline=None,
)
TestLedger = Cluster.TestCase
