# SPDX-License-Identifier: Apache-2.0
"""What tests/truth compares on the cluster, without one: the extender's own ledger decides."""

import dataclasses
import math
from collections import Counter

import msgspec
import pytest
from truth_fleet import fleet, gpu_node, node_metadata, node_status
from truth_jobs import drawn_jobs, forecast_of, forecast_text, pod
from truth_outcomes import Assignment, difference, play
from truth_simulated import by_simulator, snapshot_of

from gpupack_crds.devices import decode_devices
from gpupack_crds.kinds import GpuNode
from gpupack_devcluster import kwok
from gpupack_extender.binding import annotations
from gpupack_extender.filtering import Filter
from gpupack_extender.reserving import Reserve
from gpupack_extender.settings import Settings
from gpupack_kubeclient import objects
from gpupack_placement import POLICIES as ALL_POLICIES
from gpupack_placement import snapshot
from gpupack_scheduler.ledger.ledger import Ledger, Outcome
from gpupack_scheduler.policies import Policies
from gpupack_scheduler.queueing.observed_queue import ObservedQueue
from gpupack_scheduler.queueing.queue_owner import QueueOwner
from gpupack_scheduler.queueing.quotas.quota_stores import QuotaStores
from gpupack_scheduler.queueing.turns import Notifiers, Turns
from gpupack_scheduler.requests import pod_request

FLEET = fleet(1)
JOBS = drawn_jobs(seed=7, arrivals=150, shapes=FLEET.values())
FORECAST = forecast_of(JOBS)
POLICIES = sorted(set(ALL_POLICIES) - {"random"})


def merged(*parts):
    """As the API server merges patches into an object."""
    whole = {}
    for part in parts:
        for key, value in part.items():
            both = isinstance(value, dict) and isinstance(whole.get(key), dict)
            whole[key] = merged(whole[key], value) if both else value
    return whole


def nodes():
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    for index, shape in enumerate(FLEET.values(), start=1):
        built = merged(kwok.node(index), node_metadata(shape), node_status(shape), ready)
        yield msgspec.convert(built, objects.Node)


def gpu_nodes():
    return [msgspec.convert(gpu_node(*each), GpuNode) for each in FLEET.items()]


class LedgerDecider:
    """The extender without its servers: what kube-scheduler and the watch would tell it."""

    def __init__(self, policy):
        settings = Settings.from_environ(
            {
                "GPUPACK_POLICY": policy,
                "GPUPACK_DEMAND_FORECAST": forecast_text(FORECAST),
                "POD_NAME": "p",
                "GPUPACK_TLS_CERT": "c",
                "GPUPACK_TLS_KEY": "k",
            }
        ).decisions
        self.ledger = Ledger(lambda: 0.0)
        policies = Policies(settings.policy, self.ledger.learner, known=settings.demand_forecast)
        observed = ObservedQueue(
            self.ledger, policies, QuotaStores(), now=lambda: 0.0, decisions=settings
        )
        owner = QueueOwner(observed, policies, Notifiers(Turns(), gates=None))
        self.filter = Filter(
            self.ledger,
            policies,
            settings,
            lambda: None,
            unknown_jobs=None,
            owner=owner,
        )
        self.reserve = Reserve(self.ledger, owner, settings, lambda: None)
        self.nodes = list(nodes())
        # Another order than the simulator's: which node is first must not depend on it.
        for node in reversed(self.nodes):
            self.ledger.nodes.upsert(node)
        for inventory in gpu_nodes():
            self.ledger.gpus.upsert(inventory)
        self.bound = {}

    async def arrive(self, jobs):
        return [self.decide(job) for job in jobs]

    def decide(self, job):
        manifest = pod(job)
        manifest["metadata"] |= {"namespace": "n", "uid": job.id}
        asking = msgspec.convert(manifest, objects.Pod)
        called = msgspec.json.decode(msgspec.json.encode(manifest), type=pod_request.CalledPod)
        self.ledger.pods.upsert(asking)
        wanted = manifest["spec"].get("nodeSelector", {}).items()
        names = [n.metadata.name for n in self.nodes if wanted <= n.metadata.labels.items()]
        answer = self.filter(pod_request.of_call(called, ()), names)
        if not answer.node_names:
            self.ledger.pods.remove(asking)
            return None
        return self.bind(asking, answer.node_names[0])

    def bind(self, asking, node):
        written = annotations(self.reserve(pod_request.of_watch(asking, ()), node))
        self.ledger.end_bind(asking.metadata.uid, Outcome.LANDED)
        shown = msgspec.structs.replace(
            asking,
            metadata=msgspec.structs.replace(asking.metadata, annotations=written),
            spec=msgspec.structs.replace(asking.spec, node_name=node),
        )
        self.ledger.pods.upsert(shown)
        self.bound[asking.metadata.name] = shown
        return Assignment(node, decode_devices(*written.values()))

    async def depart(self, jobs):
        for job in jobs:
            self.ledger.pods.remove(self.bound.pop(job.id))


@pytest.mark.parametrize("policy", POLICIES)
async def test_the_ledger_places_every_job_where_the_simulator_does(policy):
    simulated = by_simulator(snapshot_of(nodes(), gpu_nodes()), JOBS, policy, FORECAST)
    decider = LedgerDecider(policy)
    played = await play(JOBS, decider, simulated)
    assert difference(JOBS, simulated=simulated, found=played.outcomes) == ""
    placed = sum(place is not None for place in simulated.values())
    assert 0 < placed < len(JOBS)
    assert played.events == len(JOBS) + placed
    assert decider.ledger.cluster.held() == {}


async def test_the_jobs_tell_the_policies_apart():
    state = snapshot_of(nodes(), gpu_nodes())
    outcomes = [by_simulator(state, JOBS, policy, FORECAST) for policy in POLICIES]
    assert all(outcomes.count(each) == 1 for each in outcomes)


def test_jobs_are_drawn_from_the_seed_alone():
    again = drawn_jobs(seed=7, arrivals=150, shapes=FLEET.values())
    other = drawn_jobs(seed=8, arrivals=150, shapes=FLEET.values())
    assert again == JOBS != other


def test_jobs_come_in_bursts_and_singly():
    bursts = Counter(job.arrival for job in JOBS).values()
    assert min(bursts) == 1
    assert max(bursts) == 16


def test_jobs_have_all_sizes_and_request_all_pools():
    assert {job.request.gpus for job in JOBS} == {None, 1, 2, 3, 4, 8}
    assert len({job.request.selector for job in JOBS}) == 4


def test_allocatable_resources_and_unhealthy_gpus_reach_the_simulator():
    state = snapshot.load(snapshot_of(nodes(), gpu_nodes()))
    sick = state.node("kwok-4")
    assert (sick.cpu, sick.memory) == (64_000, 256 * 1024)
    assert [device.health.name for device in sick.devices[:3]] == ["FAILED", "DEGRADED", "HEALTHY"]
    assert [device.clique for device in sick.devices] == [0, 0, 0, 0, 1, 1, 1, 1]


async def test_a_play_ends_where_a_job_goes_elsewhere():
    simulated = by_simulator(snapshot_of(nodes(), gpu_nodes()), JOBS, "best-fit", FORECAST)
    simulated[JOBS[20].id] = Assignment("elsewhere", ())
    played = await play(JOBS, LedgerDecider("best-fit"), simulated)
    assert JOBS[20].arrival == max(j.arrival for j in JOBS if j.id in played.outcomes)
    text = difference(JOBS, simulated=simulated, found=played.outcomes)
    assert text.startswith("job 21 (job-20)")
    assert "simulator: elsewhere" in text


async def test_a_job_whose_time_is_over_leaves_before_the_next_comes():
    calls = []

    class Teller:
        async def arrive(self, jobs):
            calls.extend(f"+{job.id}" for job in jobs)
            return [Assignment("a", ())] * len(jobs)

        async def depart(self, jobs):
            calls.extend(f"-{job.id}" for job in jobs)

    times = ((0.0, math.inf), (1.0, 0.5), (2.0, 9.0))
    jobs = [
        dataclasses.replace(job, arrival=arrival, duration=duration)
        for job, (arrival, duration) in zip(JOBS, times, strict=False)
    ]
    await play(jobs, Teller(), dict.fromkeys([job.id for job in jobs], Assignment("a", ())))
    assert calls == ["+job-0", "+job-1", "-job-1", "+job-2", "-job-2"]
