# SPDX-License-Identifier: Apache-2.0
"""A run in machine code is the run of the engine: each job on the same GPUs at the same time."""

from dataclasses import replace
from math import inf
from random import Random

import pytest
from simulator_builders import job, node

from gpupack_placement import MiB, RequestMix, policy_named
from gpupack_simulator import Sampling, Settings, Simulator, TimeUnit
from gpupack_simulator.compiled.inputs import is_supported

pytest.importorskip("numba")

from gpupack_simulator.compiled.replay import Replay

pytestmark = pytest.mark.timeout(600)  # the first of them waits for the compiler

POLICIES = ("best-fit", "fgd", "default")
NODES = (
    *(node(f"eight-{n}", 8, cpu=96_000, model="A100") for n in range(4)),
    *(node(f"two-{n}", 2, cpu=32_000, model="T4") for n in range(6)),
    *(node(f"four-{n}", 4, cpu=16_000, model="P100") for n in range(4)),
    *(node(f"large-{n}", 2, cpu=32_000, model="A100", gpu_memory=160_000) for n in range(2)),
    node("without", 0, cpu=64_000),
)
KINDS = [
    {"gpus": 0, "cpu": 8_000},
    {"gpus": 1, "cpu": 4_000},
    {"gpus": 1, "cpu": 4_000, "models": ("T4",)},
    {"gpus": 2, "cpu": 12_000},
    {"gpus": 4, "cpu": 0, "min_memory": MiB(70_000)},
    {"gpus": 1, "cpu": 1_000, "min_memory": MiB(90_000)},
    {"gpus": 8, "cpu": 64_000},
    {"gpus": 9, "cpu": 1_000},
    {"share": 300, "cpu": 2_000},
    {"share": 500, "cpu": 0, "models": ("T4", "A100")},
    {"share": 710, "cpu": 6_000, "memory": MiB(30_000)},
]
KNOWN = [job("x", **kind).request for kind in KINDS]
MIX = RequestMix.of((request, 1.0 + number) for number, request in enumerate(KNOWN))


def jobs(seed, *, number=700, lasts=None, whole_times=False):
    """As many as keep these nodes full; at whole times several things happen at once."""
    random, drawn, at = Random(seed), [], 0.0
    for n in range(number):
        at += random.expovariate(30.0)
        duration = lasts or random.expovariate(1.0)
        if whole_times:
            duration = float(1 + round(20 * duration))
        when = float(round(20 * at)) if whole_times else at
        one = job(f"job-{n}", at=when, lasts=duration)
        drawn.append(replace(one, request=random.choice(KNOWN)))
    return drawn


def both(some, policy, **given):
    settings = Settings(occupancy=False, time_unit=TimeUnit.LIFETIME, **given)
    assert is_supported(NODES, some, policy_named(policy), settings)
    how = Replay(NODES, some, policy, settings), Simulator(NODES, some, policy, settings)
    return [replace(one.run(), seconds_of_wall=0) for one in how]


@pytest.mark.parametrize("mix", [None, MIX], ids=["learned", "known"])
@pytest.mark.parametrize("discipline", ["drop", "fifo-skip"])
@pytest.mark.parametrize("policy", POLICIES)
def test_jobs_that_come_and_go(policy, discipline, mix):
    compiled, run = both(
        jobs(1),
        policy,
        discipline=discipline,
        mix=mix,
        seed=3,
        until=40.0,
        measured_from=5.0,
        sampling=Sampling(every=0.25),
    )
    waited = [record for record in run.jobs if record.wait]
    assert len(run.jobs) == 700
    assert bool(waited) == (discipline == "fifo-skip")
    assert compiled == run


@pytest.mark.parametrize("policy", POLICIES)
def test_a_cluster_that_fills_up(policy):
    some = [replace(one, arrival=float(number)) for number, one in enumerate(jobs(2, lasts=inf))]
    compiled, run = both(
        some, policy, discipline="drop", seed=1, mix=MIX, sampling=Sampling(demand_step=0.01)
    )
    assert {str(record.end) for record in run.jobs} == {"running", "dropped"}
    assert compiled == run


@pytest.mark.parametrize("discipline", ["drop", "fifo-skip"])
@pytest.mark.parametrize("policy", POLICIES)
def test_several_things_at_one_instant(policy, discipline):
    compiled, run = both(
        jobs(4, whole_times=True),
        policy,
        discipline=discipline,
        seed=2,
        until=300.0,
        sampling=Sampling(every=3.0),
    )
    arrivals = [record.submitted for record in run.jobs]
    assert len(set(arrivals)) < len(arrivals)
    assert compiled == run


def test_a_run_that_ends_before_its_last_job_arrives():
    compiled, run = both(
        jobs(5), "default", discipline="fifo-skip", until=4.0, sampling=Sampling(every=0.5)
    )
    assert len(run.jobs) < 700
    assert compiled == run
