# SPDX-License-Identifier: Apache-2.0
"""Maximum run times of cohorts in simulated time."""

from dataclasses import replace

import pytest
from simulator_builders import job, node, run, starts

from gpupack_queue import Cohort, Quota, Quotas, Rules
from gpupack_simulator.disciplines import DISCIPLINES, KnownDurations
from gpupack_simulator.record import End

LIMIT = Quotas(
    (Quota("vision", cohort="research"), Quota("speech", cohort="short")),
    (
        Cohort("research", max_runtime_seconds=10),
        Cohort("short", parent="research", max_runtime_seconds=4),
    ),
)


def of(tenant, *jobs):
    return [replace(one, tenant=tenant) for one in jobs]


def ends(course):
    return {record.job.id: (record.ended, record.end) for record in course.jobs}


def test_a_job_that_would_run_longer_ends_unfinished_at_the_limit_of_the_nearest_cohort():
    jobs = of("vision", job("long", lasts=25), job("fits", lasts=10), job("endless"))
    jobs += of("speech", job("short", lasts=25)) + of("web", job("free", lasts=25))
    course = run([node("a", 5)], jobs, discipline="fair-share", quotas=LIMIT)
    assert ends(course) == {
        "long": (10, End.TIMED_OUT),
        "fits": (10, End.SUCCEEDED),
        "endless": (10, End.TIMED_OUT),
        "short": (4, End.TIMED_OUT),
        "free": (25, End.SUCCEEDED),
    }


@pytest.mark.parametrize(("quotas", "started"), [(LIMIT, 1), (Quotas(), 16)])
def test_a_job_without_a_known_duration_is_backfilled_because_the_limit_ends_it(quotas, started):
    """The queue knows no durations: only the limit tells that `small` ends before `holder`."""
    jobs = of("web", replace(job("holder", gpus=1, lasts=11), walltime=11))
    jobs += of("web", replace(job("wide", gpus=2, at=0.5, lasts=5), walltime=5))
    jobs += of("vision", job("small", gpus=1, at=1, lasts=9))
    rules = replace(
        DISCIPLINES["fair-share"],
        rules=Rules(reserve_after_seconds=0, by_share=False),
        durations=KnownDurations.WALLTIME,
    )
    course = run([node("a", 2)], jobs, queue=rules, quotas=quotas)
    assert starts(course)["small"] == started


def test_the_limit_counts_the_time_of_all_attempts():
    """It loses its GPU after 6 and continues after the repair at 8: 4 are left."""
    from gpupack_simulator.engine.events import Component  # noqa: PLC0415
    from gpupack_simulator.failures import Breakdown  # noqa: PLC0415

    (train,) = of("vision", replace(job("train", lasts=20), checkpoint=1.0))
    broken = Breakdown(Component("a", None), 6, 8)
    course = run([node("a", 1)], [train], quotas=LIMIT, breakdowns=(broken,))
    assert ends(course) == {"train": (12, End.TIMED_OUT)}
