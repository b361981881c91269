# SPDX-License-Identifier: Apache-2.0
"""Backfill by what users said that their jobs take (discipline `easy`)."""

from gpupack_placement import Device, DeviceUuid, MiB, Node, NodeName, Request
from gpupack_simulator import Job, JobId, Settings, Simulator


def started(discipline, small_walltime):
    """When `small` starts: behind `head`, which waits for the GPU that `first` holds until 10."""
    gpus = tuple(Device(DeviceUuid(f"gpu-{n}"), n, "A100", MiB(81_920)) for n in range(2))
    jobs = [
        Job(JobId("first"), 0, Request(gpus=1), duration=10, walltime=20),
        Job(JobId("head"), 1, Request(gpus=2), duration=5, walltime=5),
        Job(JobId("small"), 2, Request(gpus=1), duration=5, walltime=small_walltime),
    ]
    settings = Settings(seed=1, discipline=discipline)
    run = Simulator([Node(NodeName("n"), gpus)], jobs, "best-fit", settings).run()
    return next(record.started for record in run.jobs if record.job.id == "small")


def test_by_exact_durations_a_job_that_ends_in_time_goes_first():
    assert started("backfill", 100) == 2


def test_by_walltimes_a_job_that_may_end_too_late_waits():
    assert started("easy", 100) == 15


def test_by_walltimes_the_first_in_line_is_expected_when_those_before_it_must_have_ended():
    assert started("easy", 17) == 2


def test_a_job_whose_user_said_nothing_is_not_backfilled():
    assert started("easy", None) == 15
