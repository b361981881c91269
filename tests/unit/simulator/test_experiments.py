# SPDX-License-Identifier: Apache-2.0
import pytest
from simulator_builders import job, node

from gpupack_placement import Cluster, snapshot
from gpupack_simulator import TimeUnit
from gpupack_simulator.experiments import Departing, Filling, KnownMix, OnSnapshot, Scripted
from gpupack_simulator.failures import FailureRates
from gpupack_simulator.inputs.openb import Pod
from gpupack_simulator.inputs.scenario import Scenario

NODES = tuple(node(f"node-{n}") for n in range(5))
PODS = tuple(
    Pod(f"pod-{n}", job("x", gpus, share=share).request)
    for n, (gpus, share) in enumerate([(0, None), (1, None), (2, None), (None, 400), (None, 700)])
)


def test_filling_drops_what_does_not_fit_until_the_demand_is_reached():
    course = Filling(NODES, PODS, 1.3).run("best-fit", 1)
    assert course.time_unit is TimeUnit.ARRIVAL
    assert course.samples[-1].arrived_milli >= 26_000
    assert {str(record.end) for record in course.jobs} == {"running", "dropped"}


def test_departures_are_measured_in_steady_state():
    course = Departing(NODES, PODS, 0.8, warm_up=2.0, measured=5.0).run("best-fit", 1)
    assert (course.measured_from, course.ended) == (2, 7)
    allocation = course.allocated_milli_time / (20_000 * 5)
    assert allocation == pytest.approx(0.8, abs=0.2)


def test_policies_meet_the_same_jobs_and_seeds_others():
    filling = Filling(NODES, PODS, 1.3)
    jobs = {
        (policy, seed): [record.job for record in filling.run(policy, seed).jobs]
        for policy in ("best-fit", "first-fit")
        for seed in (0, 1)
    }
    assert jobs["best-fit", 0] == jobs["first-fit", 0] != jobs["best-fit", 1]


def test_policies_meet_the_same_failures():
    rates = FailureRates(gpu_between=20, gpu_repair=1)
    jobs = tuple(job(f"job-{n}", at=n, lasts=5) for n in range(20))
    scripted = Scripted(Scenario("s", NODES, jobs, until=40, rates=rates))
    first, second = (scripted.run(policy, 3).outages for policy in ("best-fit", "first-fit"))
    assert len(first) > 5
    assert first == second


def test_a_large_trace_is_sampled_at_intervals(monkeypatch):
    monkeypatch.setattr("gpupack_simulator.experiments.EXACT", 50)
    jobs = tuple(job(f"job-{n}", at=n, lasts=3) for n in range(1000))
    course = Scripted(Scenario("s", NODES, jobs)).run("best-fit", 0)
    assert 190 < len(course.samples) < 210
    assert course.occupancy == ()


def test_what_if_does_not_change_the_snapshot():
    document = snapshot.dump(Cluster(NODES))
    what_if = OnSnapshot(document, (job("one", lasts=1),), "fifo")
    assert what_if.run("best-fit", 0).jobs == what_if.run("best-fit", 0).jobs


def test_only_fgd_gets_the_published_mix():
    known = {p: KnownMix.PUBLISHED.knows(p) for p in ("fgd", "best-fit", "0.5*fgd+0.5*best-fit")}
    assert known == {"fgd": True, "best-fit": False, "0.5*fgd+0.5*best-fit": False}
    assert KnownMix.ALL.knows("best-fit")
    assert not KnownMix.NONE.knows("fgd")
