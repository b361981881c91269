# SPDX-License-Identifier: Apache-2.0
"""Maximum run times of GPUJobs by their cohorts."""

import dataclasses

import msgspec
import pytest
from gpujobs import read_gpujob

from gpupack_crds.gpujob_status import RunLimit
from gpupack_crds.kinds import GpuCohort, GpuQuota
from gpupack_operator.cache import Cache
from gpupack_operator.decision import times
from gpupack_operator.decision.decide import decide
from gpupack_operator.decision.model import CreateChildren, Plan, SetDeadline
from gpupack_operator.event_router import EventRouter
from gpupack_operator.nodes_limits import NodesLimits, NodesRequestLimiter
from gpupack_operator.preemptions import Preemptions
from gpupack_operator.run_limits import RunLimits
from gpupack_operator.waiting_jobs import Key, WaitingJobs
from gpupack_operator.watches import gpujobs_of

HOUR = RunLimit(seconds=3600, cohort="batch")


def limited(observation, limit=HOUR):
    return dataclasses.replace(observation, run_limit=limit)


def admitted(build, limit=HOUR, **spec):
    """Return a job that was admitted at 0 within a cohort, and the decision."""
    job = build.gpujob(**spec)
    found = decide(limited(build.see(job, answer=Plan(build.placement("a"), 9), now=0), limit))
    return build.after(job, found), found


def test_a_job_without_a_deadline_has_that_of_its_cohort(build):
    job, found = admitted(build)
    assert job.status.run_limit == HOUR
    assert found.actions == (CreateChildren(attempt=1, deadline_seconds=3601),)
    assert times.deadline(job.spec, job.status) == build.at(3600)


@pytest.mark.parametrize(("own", "shown", "seconds"), [(7200, HOUR, 3600), (600, None, 600)])
def test_of_two_deadlines_the_shorter_one_counts(build, own, shown, seconds):
    job, _ = admitted(build, activeDeadlineSeconds=own)
    assert job.status.run_limit == shown
    assert times.deadline(job.spec, job.status) == build.at(seconds)


def test_a_job_that_reaches_the_limit_fails_with_a_reason_that_names_the_cohort(build):
    job, _ = admitted(build)
    running = {"jobs": [build.job()], "pods": [build.pod()]}
    assert decide(limited(build.see(job, now=3599, **running))).status.phase != "Failed"
    status = decide(limited(build.see(job, now=3600, **running))).status
    assert (status.phase, status.reason) == ("Failed", "MaxRunTimeExceeded")
    assert status.attempts[-1].outcome == "DeadlineExceeded"
    assert status.message == (
        "the job was active for 3600 s (maxRunSeconds of GPUCohort batch) and had not ended"
    )


def test_a_changed_limit_applies_to_a_running_job(build):
    job, _ = admitted(build)
    running = {"jobs": [build.job(deadline=3601)], "pods": [build.pod()]}
    longer, shorter = (RunLimit(seconds=seconds, cohort="batch") for seconds in (7200, 600))
    for limit, wanted in ((longer, 7201), (shorter, 601), (None, None)):
        found = decide(limited(build.see(job, now=60, **running), limit))
        assert found.status.run_limit == limit
        assert found.actions == (SetDeadline(name="train-1", seconds=wanted),)


def test_a_job_that_has_used_a_shortened_limit_does_not_start_again(build):
    job = build.gpujob()
    job = build.after(job, decide(limited(build.see(job))))
    status = msgspec.structs.replace(job.status, active_seconds=90)
    job = msgspec.structs.replace(job, status=status)
    found = decide(limited(build.see(job), RunLimit(seconds=60, cohort="batch"))).status
    assert (found.phase, found.reason) == ("Failed", "MaxRunTimeExceeded")
    assert "active for 90 s of 60 s (maxRunSeconds of GPUCohort batch)" in found.message


def test_a_change_of_the_limit_changes_no_job_that_has_ended(build):
    job, _ = admitted(build)
    running = {"jobs": [build.job()], "pods": [build.pod()]}
    job = build.after(job, decide(limited(build.see(job, now=3600, **running))))
    assert decide(limited(build.see(job, now=3700), None)).status == job.status


def quota(namespace, cohort):
    meta = {"name": "default", "namespace": namespace}
    return msgspec.convert({"metadata": meta, "spec": {"cohort": cohort}}, GpuQuota)


def cohort(name, used="0", **spec):
    body = {"metadata": {"name": name}, "spec": spec, "status": {"used": used}}
    return msgspec.convert(body, GpuCohort)


def test_the_limit_is_that_of_the_cohort_which_the_namespaces_quota_names():
    limits = RunLimits()
    limits.cohorts.replace([cohort("batch", maxRunSeconds=3600), cohort("web")])
    limits.quotas.replace([quota("team", "batch"), quota("site", "web")])
    assert (limits.of("team"), limits.of("site"), limits.of("other")) == (HOUR, None, None)
    limits.quotas.upsert(quota("site", "batch"))
    limits.cohorts.remove(cohort("web"))
    assert limits.of("site") == HOUR
    limits.cohorts.remove(cohort("batch"))
    assert limits.of("site") is None


def test_a_changed_status_is_no_change_of_a_limit():
    limits, changes = RunLimits(), []
    limits.on_change = lambda: changes.append(1)
    limits.cohorts.upsert(cohort("batch", maxRunSeconds=3600))
    limits.cohorts.upsert(cohort("batch", used="8", maxRunSeconds=3600))
    limits.quotas.upsert(quota("team", "batch"))
    limits.quotas.upsert(quota("team", "batch"))
    assert len(changes) == 2


def test_a_changed_limit_queues_the_jobs_that_it_concerns_and_they_request_plans_again(build):
    queued, cache = [], Cache()

    class Queue:
        def add(self, key):
            queued.append(key)

    line = WaitingJobs(queued.append)
    limiter = NodesRequestLimiter(NodesLimits(), queued.append)
    router = EventRouter(Queue(), cache, line, Preemptions(), limiter)
    gpujobs, key = gpujobs_of(cache, router), Key("team", "train")
    for namespace, spec in (("team", {}), ("other", {}), ("team", {"activeDeadlineSeconds": 60})):
        name = "short" if spec else "train"
        meta = {"namespace": namespace, "name": name, "uid": namespace + name}
        gpujobs.upsert(read_gpujob({"metadata": meta, "spec": {"gpus": 1} | spec}))
    limits = RunLimits()
    limits.quotas.upsert(quota("team", "batch"))
    line.record_answer(key, generation=1, now=build.at(0))
    limits.on_change = lambda: router.on_run_limits(limits)
    queued.clear()
    limits.cohorts.upsert(cohort("batch", maxRunSeconds=3600))
    assert queued == [key]
    assert line.next_request_at(key, generation=1) is None
