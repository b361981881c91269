# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs in a run: their work is done at the speed of the workers that they have."""

from math import inf

import pytest
from simulator_builders import node

from gpupack_placement import Request
from gpupack_simulator import Job, Settings, Simulator
from gpupack_simulator.disciplines import DISCIPLINES
from gpupack_simulator.engine.progress import Progress
from gpupack_simulator.errors import InvalidJob
from gpupack_simulator.job import JobId


def job(name, arrival=0.0, workers=1, duration=inf, **kw):
    return Job(JobId(name), arrival, Request(gpus=1), workers, duration, **kw)


def run(count, *jobs, grace=0.0):
    settings = Settings(queue=DISCIPLINES["fair-share"], grace=grace)
    found = Simulator([node("n", count)], jobs, "best-fit", settings).run()
    return {record.job.id: record for record in found.jobs}, found


def test_with_all_its_workers_it_takes_its_duration():
    records, found = run(4, job("a", workers=4, duration=100.0, min_workers=2))
    assert records["a"].ended == pytest.approx(100)
    assert records["a"].mean_width == pytest.approx(4)
    assert records["a"].resizes == 0
    assert found.allocated_milli_time == pytest.approx(400_000)


def test_an_elastic_job_shrinks_for_another_grows_again_and_ends_later():
    other = job("b", 10.0, workers=2, duration=20.0)
    wide = job("a", workers=4, duration=1000.0, min_workers=2, resize_pause=5.0)
    records, found = run(4, wide, other)
    assert records["b"].started == 10
    # At 10 it shrinks, pauses 5, goes on with 2, grows 300 after it shrank, and pauses 5 again.
    left = 4000 - 40 - 2 * (310 - 15)
    assert records["a"].ended == pytest.approx(315 + left / 4)
    assert records["a"].resizes == 2
    held = 4 * 10 + 2 * 300 + 4 * (records["a"].ended - 310)
    assert found.allocated_milli_time == pytest.approx(1000 * (held + 40))


def test_a_worker_that_is_stopped_runs_on_for_the_grace_period():
    other = job("b", 10.0, workers=2, duration=20.0)
    wide = job("a", workers=4, duration=1000.0, min_workers=2)
    records, _ = run(4, wide, other, grace=3.0)
    assert records["b"].started == 13
    assert records["a"].attempts == 1


def test_each_extra_worker_adds_its_efficiency():
    course = Progress(job("a", workers=4, duration=100.0, min_workers=2, efficiency=0.5), 0.0)
    assert course.ends == pytest.approx(150)
    course.resize(2, 0.0)
    assert course.ends == pytest.approx(100)


@pytest.mark.parametrize("least", [0, 5])
def test_the_minimum_is_between_one_and_the_workers(least):
    with pytest.raises(InvalidJob, match="minWorkers"):
        job("a", workers=4, min_workers=least)
