# SPDX-License-Identifier: Apache-2.0
"""The extender and the REST API get the same objects: the extender does what the API predicts.

Both compute reservations, each at its own time. A reservation that depends on jobs of unknown
duration is valid for RECOMPUTE_AFTER_SECONDS, and until then the two may differ: questions are
further apart.
"""

import datetime as dt
import random
from typing import Any, NamedTuple

import msgspec
import pytest
from extender_builders import World, gpu_node, node

from gpupack_apiserver.read_model import ReadModel
from gpupack_apiserver.settings import Settings
from gpupack_apiserver.shown_job import ShownJob
from gpupack_crds.placement import by_worker
from gpupack_crds.plan import PlanRefusal
from gpupack_queue.reservations.stored_reservations import RECOMPUTE_AFTER_SECONDS
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.queueing.settings import QueueSettings

NODES = ("a", "b", "c", "d", "e")
QUESTIONS = 25
PROTECTED_SECONDS = QueueSettings().preemption.min_run_seconds
KEEP_SECONDS = QueueSettings().reserve_after_seconds
SHARE = {"percent": 30, "memory": "8Gi"}
FORTY_SHARES = {"workers": 40, "share": SHARE}


class Place(NamedTuple):
    """The place of one worker."""

    node: str
    devices: tuple[tuple[str, int], ...]


class Made(NamedTuple):
    """A GPUJob's spec, its creation in seconds since the epoch, and its failed nodes."""

    spec: dict[str, Any]
    at: float
    failed_on: tuple[str, ...] = ()

    @property
    def attempt(self):
        """Return the attempt, which waits or runs."""
        return len(self.failed_on) + 1


class Outcome(NamedTuple):
    """The places of its workers, or why it waits; the victims."""

    places: tuple[Place, ...] = ()
    reason: str = ""
    position: int | None = None
    stopped: frozenset[str] = frozenset()


class TenantJobs:
    """The jobs of a tenant: the names of the running and of the pending ones."""

    def __init__(self, world, model, call):
        self.world, self.model, self.call = world, model, call
        self.running: dict[str, tuple[Place, ...]] = {}
        self.waiting: list[str] = []
        self.made: dict[str, Made] = {}
        self.shown: dict[str, ShownJob] = {}
        """The objects as last shown."""
        for ledger in (world.ledger, model.ledger):
            _add_nodes(ledger)

    def restart(self):
        """Start another leader: it is shown all objects, and pending jobs are submitted."""
        self.world.use(_ledger(self.world))
        _add_nodes(self.world.ledger)
        self.world.ledger.jobs.replace([*self.shown.values()])
        for name in self.waiting:
            self._ask(name)
        self.settle()

    async def predict(self, spec):
        """Return the API's prediction for a job that would be created now."""
        body = {"namespace": "team", "job": spec}
        found = (await self.call("what-if", user="tenant", body=body)).body
        places = tuple(
            Place(each["node"], tuple((d["uuid"], d["percent"]) for d in each["devices"]))
            for each in found["workers"]
        )
        stopped = frozenset(each["name"] for each in found["preempts"])
        return Outcome(places, "" if places else found["reason"], found["position"], stopped)

    def submit(self, name, spec, *, failed_on=()):
        """Create the job, or return it after a failure, and submit it to the extender."""
        self.made[name] = Made(spec, self.world.now, failed_on)
        self.waiting.append(name)
        self._show(name, attempt=len(failed_on), reason="TooFewFreeGpus" if failed_on else "")
        self.settle()
        if name in self.running:
            return Outcome(self.running[name])
        answer = self._ask(name)
        if answer.preemption is None:
            return Outcome(reason=answer.reason, position=answer.position)
        self.end(name)
        attempts = [each for one in answer.preemption.victims for each in one.attempts]
        names = (each.partition("/")[0].removeprefix("uid-") for each in attempts)
        return Outcome(_places(answer.preemption), stopped=frozenset(names))

    def end(self, name):
        """End or withdraw a job; admit the jobs that fit now."""
        if name in self.running:
            self.record_end(name)
        else:
            self.waiting.remove(name)
            shown = self.shown.pop(name)
            self.world.ledger.jobs.remove(shown)
            self.model.jobs.remove(shown)
        self.settle()

    def record_end(self, name):
        """End a running job, without a decision after it."""
        del self.running[name]
        self._show(name, phase="Succeeded", attempt=self.made[name].attempt)

    def settle(self):
        """Admit the jobs that fit: run cycles until two decide nothing."""
        idle = 0
        while idle < 2:
            self.world.decide()
            admitted = [each for each in list(self.waiting) if self._is_admitted(each)]
            idle = 0 if admitted else idle + 1

    def _is_admitted(self, name):
        answer = self._ask(name)
        if isinstance(answer, PlanRefusal):
            return False
        self._run(name, answer)
        return True

    def _ask(self, name):
        made = self.made[name]
        asked = {"attempt": made.attempt, "avoid": made.failed_on, **made.spec}
        return self.world.asks(name, submitted=made.at, since=made.at, **asked)

    def _run(self, name, plan):
        now, made = _moment(int(self.world.now)), self.made[name]
        self._show(
            name,
            phase="Running",
            attempt=made.attempt,
            placement=msgspec.to_builtins(plan.placement),
            startedAt=now,
            attempts=[*_failed_attempts(made), {"number": made.attempt, "startedAt": now}],
            priority=made.spec.get("priority", 0),
        )
        self.waiting.remove(name)
        self.running[name] = _places(plan)

    def _show(self, name, **status):
        shown = self.shown[name] = self._shown(name, **status)
        self.world.ledger.jobs.upsert(shown)
        self.model.jobs.upsert(shown)

    def _shown(self, name, **status):
        """Return the object as the API server has it."""
        made = self.made[name]
        built = {
            "metadata": {
                "name": name,
                "namespace": "team",
                "uid": f"uid-{name}",
                "resourceVersion": "1",
                "creationTimestamp": _moment(made.at),
            },
            "spec": made.spec,
            "status": {"phase": "Pending", "attempts": _failed_attempts(made), **status},
        }
        return msgspec.json.decode(msgspec.json.encode(built), type=ShownJob)


def _ledger(world):
    """Return a ledger that breaks ties between nodes like the extender's."""
    return Ledger(lambda: world.now, observed_resources=world.observed)


def _add_nodes(ledger):
    for name in NODES:
        ledger.nodes.upsert(node(name))
        ledger.gpus.upsert(gpu_node(name))


def _failed_attempts(made):
    """Return the earlier attempts in the form of a status."""
    at = _moment(int(made.at))
    ended = {"startedAt": at, "finishedAt": at, "outcome": "Failed", "reason": "WorkerFailed"}
    return [
        {"number": number, **ended, "fault": {"worker": 0, "node": on}}
        for number, on in enumerate(made.failed_on, start=1)
    ]


def _moment(seconds):
    return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat()


def _places(found):
    return tuple(
        Place(each.node, tuple((d.uuid, d.percent) for d in each.devices))
        for each in by_worker(found.placement)
    )


@pytest.fixture
def world():
    made = World()
    made.use(_ledger(made))
    return made


@pytest.fixture
def model(world, watched):
    made = ReadModel(Settings(decisions=world.decisions), now=lambda: world.now)
    made.watches = {"nodes": watched}
    return made


@pytest.fixture
def jobs(world, model, call):
    """Return five nodes with four free GPUs each."""
    return TenantJobs(world, model, call)


async def test_forty_shares_start_at_their_predicted_places(jobs):
    jobs.submit("before", {"gpus": 4, "workers": 2})
    predicted = await jobs.predict(FORTY_SHARES)
    assert len(predicted.places) == 0
    jobs.end("before")
    predicted = await jobs.predict(FORTY_SHARES)
    assert len(predicted.places) == FORTY_SHARES["workers"]
    assert jobs.submit("forty", FORTY_SHARES) == predicted


async def test_a_new_leader_keeps_the_predicted_reservation(jobs):
    jobs.submit("most", {"gpus": 4, "workers": 4})
    jobs.submit("all", {"gpus": 4, "workers": 5})
    jobs.world.now += KEEP_SECONDS + 1
    predicted = await jobs.predict({"gpus": 4})
    assert predicted.reason == "Reserved"
    jobs.restart()
    assert jobs.submit("small", {"gpus": 4}) == predicted


@pytest.mark.parametrize("restarts", [False, True])
async def test_the_predicted_victim_of_two_equal_jobs_is_preempted(jobs, restarts):
    jobs.submit("most", {"gpus": 4, "workers": 4})
    for name in ("early", "late"):
        jobs.submit(name, {"gpus": 2, "priority": -5})
        jobs.world.now += 0.3
    jobs.world.now += PROTECTED_SECONDS + 1
    if restarts:
        jobs.restart()
    predicted = await jobs.predict({"gpus": 2})
    assert len(predicted.stopped) == 1
    assert jobs.submit("urgent", {"gpus": 2}) == predicted


@pytest.mark.parametrize("failed_on", ["one", "two"])
async def test_a_job_that_failed_on_a_node_is_predicted_elsewhere(jobs, failed_on):
    jobs.submit("most", {"gpus": 4, "workers": 3})
    for name in ("one", "two"):
        jobs.submit(name, {"gpus": 4})
    jobs.submit("again", {"gpus": 4}, failed_on=(jobs.running[failed_on][0].node,))
    for name in ("one", "two"):
        jobs.record_end(name)
    predicted = await jobs.predict({"gpus": 4})
    assert len(predicted.places) == 1
    assert jobs.submit("next", {"gpus": 4}) == predicted


@pytest.mark.parametrize("seed", range(10))
async def test_the_extender_does_what_the_api_predicts(jobs, seed):
    chance, outcomes = random.Random(seed), set()
    for number in range(QUESTIONS):
        names = sorted((*jobs.running, *jobs.waiting))
        if names and chance.random() < 1 / 2:
            jobs.end(chance.choice(names))
        if chance.random() < 1 / 10:
            jobs.restart()
        jobs.world.now += RECOMPUTE_AFTER_SECONDS + 1 + chance.random()
        jobs.settle()
        spec = drawn(chance)
        predicted = await jobs.predict(spec)
        assert jobs.submit(f"asked-{number}", spec) == predicted, (number, spec)
        outcomes.add((bool(predicted.places), bool(predicted.stopped)))
    assert {(True, False), (False, False)} <= outcomes


def drawn(chance):
    """Draw a job; small sizes are more frequent."""
    size = chance.choice(({"gpus": 1}, {"gpus": 2}, {"gpus": 4}, {"share": SHARE}))
    workers = 40 if chance.random() < 0.1 else chance.choice((1, 1, 2, 3))
    return {"workers": workers, **size}
