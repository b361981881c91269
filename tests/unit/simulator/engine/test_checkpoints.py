# SPDX-License-Identifier: Apache-2.0
"""Jobs report checkpoints to the queue, which chooses victims by the work since then."""

from dataclasses import replace

import pytest
from simulator_builders import node

from gpupack_placement import Request
from gpupack_queue import Limit, ModelKey, Quota, Quotas, Tenant
from gpupack_simulator import Job, JobId, Settings, Simulator
from gpupack_simulator.disciplines import DISCIPLINES, KnownDurations


def job(name, arrival, tenant, **kw):
    given = {"duration": 1000.0, "tenant": tenant} | kw
    return Job(JobId(name), arrival, Request(gpus=1), **given)


def run(**of_old):
    """Run `old` from 0 and `young` from 100 on; `mine` takes one of their GPUs at 200."""
    jobs = [
        job("old", 0.0, "guest", **of_old),
        job("young", 100.0, "guest"),
        job("mine", 200.0, "owner", duration=10.0),
    ]
    fair = DISCIPLINES["fair-share"]
    discipline = replace(fair, durations=KnownDurations.NONE)
    quotas = Quotas((Quota(Tenant("owner"), {ModelKey(""): Limit(2000)}),))
    settings = Settings(queue=discipline, discipline="fair-share", quotas=quotas)
    return Simulator([node("a", 2)], jobs, "first-fit", settings).run()


def victims(made):
    return [str(record.job.id) for record in made.jobs if record.preemptions]


@pytest.mark.parametrize(
    ("of_old", "victim"),
    [
        ({}, "young"),
        ({"checkpoint": 150.0}, "young"),
        ({"checkpoint": 150.0, "reports_checkpoints": True}, "old"),
        ({"checkpoint": 199.0, "reports_checkpoints": True}, "old"),
        ({"checkpoint": 201.0, "reports_checkpoints": True}, "young"),
    ],
)
def test_the_job_that_loses_the_least_work_is_the_victim(of_old, victim):
    assert victims(run(**of_old)) == [victim]


def test_a_job_that_reports_checkpoints_continues_from_the_last_one():
    records = {
        str(record.job.id): record
        for record in run(checkpoint=150.0, reports_checkpoints=True).jobs
    }
    assert records["old"].ended == 210.0 + 1000.0 - 150.0
