# SPDX-License-Identifier: Apache-2.0
"""After every event. GPUPACK_TEST_CASES sets how many cases each property gets."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulator_builders import job, node

from gpupack_placement import WHOLE_GPU, DeviceUuid, Health, NodeName
from gpupack_simulator import (
    DISCIPLINES,
    Breakdown,
    Cause,
    Component,
    End,
    Sampling,
    Settings,
    Simulator,
    holder_name,
)

cases = settings(max_examples=int(os.environ.get("GPUPACK_TEST_CASES", "25")), deadline=None)

jobs_strategy = st.lists(
    st.builds(
        dict,
        gpus=st.sampled_from([0, 1, 1, 2, 4]),
        at=st.integers(0, 12),
        lasts=st.integers(1, 8),
        share=st.sampled_from([None, None, None, 200, 500, 900]),
        workers=st.sampled_from([1, 1, 1, 2, 3]),
        priority=st.integers(0, 2),
        cpu=st.sampled_from([0, 2000, 9000]),
    ),
    min_size=1,
    max_size=25,
)
breakdowns_strategy = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from([None, 0, 1]),
        st.integers(0, 15),
        st.integers(1, 6),
    ),
    max_size=4,
)


@st.composite
def simulators(draw):
    nodes = [node("a", 4, cpu=16_000), node("b", 2, cpu=16_000), node("c", 3, cpu=9_000)]
    breakdowns = tuple(
        Breakdown(
            Component(NodeName(n), None if i is None else DeviceUuid(f"{n}/{i}")), at, at + lasts
        )
        for n, i, at, lasts in draw(breakdowns_strategy)
    )
    jobs = [job(f"job-{n}", **kw) for n, kw in enumerate(draw(jobs_strategy))]
    given_ = Settings(
        discipline=draw(st.sampled_from(sorted(DISCIPLINES))),
        seed=draw(st.integers(0, 3)),
        breakdowns=breakdowns,
        requeue=draw(st.booleans()),
        sampling=Sampling(each_instant=True, causes=True),
    )
    return Simulator(nodes, jobs, draw(st.sampled_from(["first-fit", "best-fit"])), given_)


@cases
@given(simulators())
def test_free_and_used_are_the_capacity_and_nothing_is_oversubscribed(simulator):
    while simulator.step():
        a = simulator.cluster.arrays
        healthy = a.health == Health.HEALTHY
        assert (a.used_milli <= WHOLE_GPU).all()
        assert (a.used_cpu <= a.cpu).all()
        np.testing.assert_array_equal((a.free_milli + a.used_milli)[healthy], WHOLE_GPU)
        assert simulator.sample().allocated_milli == a.used_milli.sum()


@cases
@given(simulators())
def test_each_free_gpu_has_one_cause(simulator):
    while simulator.step():
        sample = simulator.sample()
        free = sample.capacity_milli - sample.allocated_milli
        assert sum(sample.free_by_cause.values()) == free
        assert set(sample.free_by_cause) <= set(Cause)


@cases
@given(simulators())
def test_gangs_hold_all_or_nothing(simulator):
    while simulator.step():
        for record in simulator.state().jobs:
            workers = range(record.job.workers)
            held = [simulator.cluster.placement_of(holder_name(record.job.id, w)) for w in workers]
            if record.end is End.RUNNING:
                assert tuple(held) == record.placements
            else:
                assert held == [None] * record.job.workers


@cases
@given(simulators())
def test_no_job_runs_on_failed_components(simulator):
    while simulator.step():
        a = simulator.cluster.arrays
        assert not a.used_milli[a.health == Health.FAILED].any()
        assert not a.used_milli[~a.ready].any()


@cases
@given(simulators())
def test_the_clock_never_goes_back_and_every_job_is_accounted_for(simulator):
    before = 0.0
    while simulator.step():
        assert simulator.now >= before
        before = simulator.now
    course = simulator.record()
    assert not any(record.end is End.RUNNING for record in course.jobs)
    for record in course.jobs:
        if record.end is End.SUCCEEDED:
            assert record.ended == record.started + record.job.duration
            assert record.wait <= record.started - record.submitted


SCRIPT = """
import sys
from simulator_builders import node, run, some_jobs
course = run([node("a"), node("b"), node("c")], some_jobs(7, jobs=250), sys.argv[1],
             discipline="backfill", seed=2)
print([(r.job.id, r.started, r.ended, r.placements) for r in course.jobs])
"""


@pytest.mark.parametrize("policy", ["random", "0.5*fgd+0.5*bid-price"])
def test_one_seed_gives_one_trace_in_every_process(policy):
    path = os.pathsep.join(sys.path)
    said = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT, policy],
            env={"PYTHONPATH": path, "PYTHONHASHSEED": hashes},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hashes in ("1", "2")
    }
    assert len(said) == 1
