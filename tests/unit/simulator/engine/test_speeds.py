# SPDX-License-Identifier: Apache-2.0
"""GPUs that are slower than others: the slowest one of a job sets its pace."""

import dataclasses

import pytest
from simulator_builders import job, node, run, starts

from gpupack_placement import DeviceUuid, Health
from gpupack_simulator.errors import InvalidParameter


def ended(run):
    """Job → when it ended."""
    return {record.job.id: record.ended for record in run.jobs}


def speeds(**by_index):
    """Of node `a`, `gpu2=0.5`."""
    return {DeviceUuid(f"a/{name[3:]}"): speed for name, speed in by_index.items()}


def test_a_job_takes_as_long_as_its_slowest_gpu_needs():
    jobs = [job("slow", 3, lasts=10.0), job("fast", 1, lasts=10.0)]
    found = run([node("a")], jobs, speeds=speeds(gpu1=0.5, gpu2=0.8))
    assert ended(found) == {"slow": 20.0, "fast": 10.0}


def test_a_gang_with_one_worker_on_a_slow_gpu_takes_longer():
    found = run(
        [node("a", 1), node("b", 1)], [job("g", workers=2, lasts=9.0)], speeds=speeds(gpu0=0.9)
    )
    assert ended(found)["g"] == pytest.approx(10.0)


def test_a_gpu_that_is_known_to_be_slow_is_used_last():
    whole = node("a", 2)
    slow = dataclasses.replace(whole.devices[0], health=Health.DEGRADED)
    known = dataclasses.replace(whole, devices=(slow, whole.devices[1]))
    jobs = [job("first", lasts=6.0)]
    assert ended(run([whole], jobs, speeds=speeds(gpu0=0.5))) == {"first": 12.0}
    assert ended(run([known], jobs, speeds=speeds(gpu0=0.5))) == {"first": 6.0}


def test_an_elastic_job_works_at_the_pace_of_its_slowest_gpu():
    elastic = dataclasses.replace(job("e", lasts=10.0, workers=2), min_workers=1, efficiency=1.0)
    found = run([node("a", 2)], [elastic], speeds=speeds(gpu0=0.5))
    assert ended(found)["e"] == pytest.approx(20.0)


def test_without_slow_gpus_nothing_changes():
    jobs = [job(f"j{number}", 2, lasts=3.0) for number in range(5)]
    plain, with_speeds = run([node("a")], jobs), run([node("a")], jobs, speeds=speeds(gpu0=1.0))
    assert (starts(plain), ended(plain)) == (starts(with_speeds), ended(with_speeds))


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan")])
def test_a_speed_is_positive(speed):
    with pytest.raises(InvalidParameter, match="must be positive"):
        run([node("a")], [], speeds=speeds(gpu0=speed))
