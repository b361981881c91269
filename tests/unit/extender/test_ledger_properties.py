# SPDX-License-Identifier: Apache-2.0
"""Whatever happens in whatever order: no GPU is held twice, and the ledger can be rebuilt.

The model is an API server whose watch events arrive late, an operator, a kube-scheduler whose
Bindings get lost or arrive late, and an extender that is killed and rebuilds itself.
"""

import collections
import contextlib
import itertools

import hypothesis.strategies as st
import msgspec
from extender_builders import World, gpu_node, job, plan_request, pod
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gpupack_crds.plan import PlanResponse
from gpupack_extender.binding import judge
from gpupack_extender.errors import BindRefused, NotReady
from gpupack_extender.ledger import claims
from gpupack_extender.ledger.ledger import Outcome

JOBS = st.sampled_from(["one", "two", "three"])
PICK = st.integers(0, 1000)
KINDS = st.sampled_from(["pods", "jobs"])


def pick(items, number):
    return sorted(items)[number % len(items)]


class Cluster(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.world = World()
        self.world.add_node("a")
        self.world.add_node("b")
        self.pods, self.jobs, self.plans = {}, {}, {}
        self.gpus = {}
        self.events = {"pods": collections.deque(), "jobs": collections.deque()}
        self.on_the_way = {}
        self.lagged = False
        self.serial = itertools.count()

    # The API server

    def write(self, kind, key, item):
        before = getattr(self, kind).pop(key, None)
        if item is not None:
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
        devices = claims.shares(claim.placement)
        self.write("pods", uid, self.rebuilt(target, on=claim.placement.node, devices=devices))

    def rebuilt(self, target, **changes):
        labels = target.metadata.labels
        worker = None
        if labels:
            worker = (labels["gpupack.dev/job"], int(labels["gpupack.dev/attempt"]), 0)
        gpus = int(target.spec.containers[0].resources.limits["gpupack.dev/gpu"])
        return pod(target.metadata.name, gpus=gpus, worker=worker, **changes)

    @rule(kind=KINDS)
    def a_watch_event_arrives(self, kind):
        if self.events[kind]:
            self.deliver(kind)

    @rule(kind=KINDS)
    def a_watch_lists_anew(self, kind):
        self.events[kind].clear()
        getattr(self.world.ledger, kind).replace(list(getattr(self, kind).values()))

    @rule(number=PICK)
    def a_gpu_fails_or_recovers(self, number):
        failed = [number % 4] if number % 3 else []
        self.world.ledger.gpus.upsert(gpu_node("a", failed=failed))

    @rule(seconds=st.sampled_from([1, 6, 11, 31]), lags=st.booleans())
    def time_passes(self, seconds, lags):
        """A watch that lags for longer than a plan is held makes contradictions, no more."""
        self.world.now += seconds
        self.lagged |= lags and bool(self.events["jobs"])
        while self.events["jobs"] and not lags:
            self.deliver("jobs")

    # The operator

    @rule(name=JOBS, gpus=st.integers(1, 3))
    def a_job_is_planned(self, name, gpus):
        current = self.jobs.get(f"uid-{name}") or job(name)
        if current.metadata.uid not in self.jobs:
            self.gpus[name] = gpus
            self.write("jobs", current.metadata.uid, current)
        if current.status.phase == "Admitted" or self.world.now < self.world.decides_from:
            return
        asked = plan_request(name, attempt=current.status.attempt + 1, gpus=self.gpus[name])
        plan = self.world.plan(asked)
        if isinstance(plan, PlanResponse):
            self.plans[name] = (plan, asked.attempt, self.world.now + plan.expires_seconds)

    @rule(name=JOBS)
    def a_plan_is_written(self, name):
        plan, attempt, until = self.plans.pop(name, (None, 0, 0.0))
        current = self.jobs.get(f"uid-{name}")
        if plan is None or current is None or self.world.now >= until:
            return
        if attempt == current.status.attempt + 1:
            self.set_status(current, attempt, "Admitted", plan.placement)

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
        status = msgspec.structs.replace(
            current.status, attempt=attempt, phase=phase, placement=placement
        )
        self.write("jobs", current.metadata.uid, msgspec.structs.replace(current, status=status))

    # Pods

    @rule(name=JOBS)
    def a_workers_pod_is_made(self, name):
        current = self.jobs.get(f"uid-{name}")
        if current is not None and current.status.phase == "Admitted":
            made = pod(
                f"{name}-{next(self.serial)}",
                gpus=self.gpus[name],
                worker=(name, current.status.attempt, 0),
            )
            self.write("pods", made.metadata.uid, made)

    @rule(gpus=st.integers(1, 4))
    def a_plain_pod_is_made(self, gpus):
        made = pod(f"plain-{next(self.serial)}", gpus=gpus)
        self.write("pods", made.metadata.uid, made)

    @rule(gpus=st.integers(1, 4), node=st.sampled_from(["a", "b"]))
    def a_pod_is_bound_by_another_scheduler(self, gpus, node):
        made = pod(f"foreign-{next(self.serial)}", gpus=gpus, on=node)
        self.write("pods", made.metadata.uid, made)

    @precondition(lambda self: self.pods)
    @rule(number=PICK, gone=st.booleans())
    def a_pod_ends(self, number, gone):
        uid = pick(self.pods, number)
        ended = self.pods[uid]
        done = self.rebuilt(ended, on=ended.spec.node_name, phase="Succeeded")
        self.write("pods", uid, None if gone else done)

    # kube-scheduler

    def unbound(self):
        return [u for u, p in self.pods.items() if not p.spec.node_name and not p.finished]

    @precondition(lambda self: self.unbound())
    @rule(number=PICK, nodes=st.sampled_from([("a", "b"), ("a",), ("b",)]))
    def a_pod_is_filtered(self, number, nodes):
        with contextlib.suppress(NotReady):
            self.world.filter(self.pods[pick(self.unbound(), number)], nodes=nodes)

    @precondition(lambda self: self.unbound())
    @rule(
        number=PICK,
        node=st.sampled_from(["a", "b"]),
        fate=st.sampled_from(["lands", "reply lost", "late", "refused"]),
    )
    def a_pod_is_bound(self, number, node, fate):
        uid = pick(self.unbound(), number)
        if uid in self.on_the_way:
            return
        try:
            claim = self.world.reserve(self.pods[uid], node)
        except (BindRefused, NotReady):
            return
        if claim.state is not claims.State.BINDING:
            return
        self.on_the_way[uid] = claim
        outcome = Outcome.NOT_LANDED
        if fate == "refused" and not claim.in_doubt:
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
    def doubts_are_asked_about(self):
        for claim in self.world.ledger.unconfirmed(older_than_seconds=5):
            outcome = judge(self.pods.get(claim.uid), claim, may_have_landed=True)
            self.world.ledger.settle(claim, outcome)

    # The extender

    @rule()
    def the_extender_is_killed(self):
        """What it had on the way has long arrived when it has listed everything."""
        for uid in list(self.on_the_way):
            self.land(uid)
        self.world.use(self.fresh_ledger())
        for queue in self.events.values():
            queue.clear()
        self.world.decides_from = self.world.now + self.world.decisions.plan_hold_seconds

    def fresh_ledger(self):
        fresh = self.world.new_ledger()
        old = self.world.ledger
        fresh.nodes.replace(list(old.nodes.items.values()))
        fresh.gpus.replace(list(old.gpus.items.values()))
        fresh.pods.replace(list(self.pods.values()))
        fresh.jobs.replace(list(self.jobs.values()))
        return fresh

    # What must hold

    @invariant()
    def no_gpu_is_bound_twice(self):
        live = [p for p in self.pods.values() if p.spec.node_name and not p.finished]
        held = collections.Counter(
            each.uuid
            for p in live
            for each in msgspec.json.decode(
                p.metadata.annotations.get("gpupack.dev/devices", "[]"),
                type=tuple[claims.devices.DeviceShare, ...],
            )
        )
        assert not [device for device, times in held.items() if times > 1]

    @invariant()
    def no_gpu_is_held_twice(self):
        if self.lagged:
            return
        books = self.world.ledger.books
        assert books.contradictions == 0
        for claim in books.pods.values():
            overbooked = "claimed by others" in books.obstacle(claim.place)
            assert not overbooked

    def teardown(self):
        """Once all is known, the ledger equals one built from the API server's objects."""
        for uid in list(self.on_the_way):
            self.land(uid)
        for kind in self.events:
            while self.events[kind]:
                self.deliver(kind)
        self.world.now += 1000
        self.world.ledger.expire()
        self.doubts_are_asked_about()
        for uid in list(self.world.ledger.books.pods):
            self.world.ledger.settle(self.world.ledger.books.pods[uid], Outcome.UNKNOWN)
        assert holdings(self.world.ledger) == holdings(self.fresh_ledger())


def holdings(ledger):
    """GPUs by holder. CPU is left out: a GPUJob's status does not tell what its plan counted."""
    books = ledger.books
    holders = [claims.shares(c.placement) for c in books.pods.values()]
    free = {node.name: ledger.cluster.free_devices(node.name) for node in ledger.cluster.nodes()}
    return sorted(books.pods), sorted(map(str, books.workers)), sorted(map(str, holders)), free


Cluster.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLedger = Cluster.TestCase
