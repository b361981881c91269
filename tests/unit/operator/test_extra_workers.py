# SPDX-License-Identifier: Apache-2.0
"""Extra workers of an elastic gang start and end while the attempt continues."""

import dataclasses

import pytest
from msgspec import structs

from gpupack_crds import names
from gpupack_crds.gpujob_status import PREEMPTION_TEXTS
from gpupack_crds.placement import by_node, by_worker
from gpupack_operator.decision.decide import decide
from gpupack_operator.decision.model import (
    AttemptPreemption,
    CreateChildren,
    CreateExtraWorker,
    DeleteJob,
    ExtraWorkerCreationFailure,
    GrowthPlan,
    NameInUse,
    NoGrowth,
    Plan,
    PlannerBusy,
    RequestGrowth,
)
from gpupack_operator.decision.notices import notices
from gpupack_operator.decision.reasons import JobReason

URGENT = AttemptPreemption(reason="ElasticScaleDown", preemptor=("team", "urgent"))


def job_of(build, index, *, attempt=1, **changes):
    """Make the Job of extra worker `index`."""
    job = build.job(attempt=attempt, **changes)
    labels = job.metadata.labels | {names.INDEX_LABEL: str(index)}
    meta = structs.replace(
        job.metadata,
        name=f"train-{attempt}-x{index}",
        uid=f"uid-of-x{index}",
        labels=labels,
        creation_timestamp=build.at(0),
    )
    return structs.replace(job, metadata=meta)


def pod_of(build, index, **changes):
    """Make the pod of extra worker `index`."""
    pod = build.pod(index, **changes)
    (owner,) = pod.metadata.owner_references
    owned = structs.replace(owner, name=f"train-1-x{index}", uid=f"uid-of-x{index}")
    return structs.replace(pod, metadata=structs.replace(pod.metadata, owner_references=(owned,)))


@pytest.fixture
def runs(build):
    """A gang of 2 to 4 workers; `look` decides about it."""

    class Runs:
        job = structs.replace(build.gpujob(workers=4, minWorkers=2))

        def start(self, *nodes):
            answer = Plan(build.placement(*nodes), seconds=9)
            decision = decide(build.see(self.job, answer=answer, now=0))
            self.job = build.after(self.job, decision)
            return decision

        def look(self, *, jobs=(), pods=(), gang=("a", "b"), write=True, **observed):
            mine = [build.pod(index, node=node) for index, node in enumerate(gang)]
            names = observed.keys() & {"extra_preemptions", "may_grow"}
            more = {name: observed.pop(name) for name in names}
            seen = build.see(
                self.job, jobs=(build.job(), *jobs), pods=(*mine, *pods), **({"now": 20} | observed)
            )
            decision = decide(dataclasses.replace(seen, **more))
            self.news = notices(self.job, decision.status)
            if write:
                self.job = build.after(self.job, decision)
            return decision

        @property
        def placed(self):
            return [each.worker for each in by_worker(self.job.status.placement)]

    return Runs()


@pytest.fixture
def wide(build, runs):
    """The gang runs with 4 workers."""
    runs.start("a", "b", "c", "d")
    runs.jobs = (job_of(build, 2), job_of(build, 3))
    runs.pods = (pod_of(build, 2, node="c"), pod_of(build, 3, node="d"))
    runs.look(jobs=runs.jobs, pods=runs.pods)
    return runs


def test_planned_extra_workers_are_written_into_the_status_first(runs):
    decision = runs.start("a", "b", "c")
    assert decision.actions == (CreateChildren(attempt=1, deadline_seconds=None),)
    assert runs.placed == [0, 1, 2]
    assert (decision.status.width.workers, decision.status.width.column) == (3, "3 of 2-4")
    assert decision.status.gpus == "3"
    assert decision.status.message == "attempt 1 has 3 GPUs on a,b,c"


def test_each_placed_extra_worker_gets_its_own_job_after_the_gang(runs):
    runs.start("a", "b", "c", "d")
    decision = runs.look()
    assert decision.actions == (
        CreateExtraWorker(attempt=1, worker=2, node="c"),
        CreateExtraWorker(attempt=1, worker=3, node="d"),
    )


def test_the_gang_runs_without_its_extra_workers(runs):
    runs.start("a", "b", "c", "d")
    assert runs.look().status.phase == "Running"


def test_the_job_succeeds_with_its_minimum_workers_and_deletes_the_extra_ones(build, wide):
    done = [build.pod(index, phase="Succeeded") for index in (0, 1)]
    decision = wide.look(gang=(), jobs=wide.jobs, pods=(*done, *wide.pods))
    assert decision.status.phase == "Succeeded"
    ended = {each.name for each in decision.actions if isinstance(each, DeleteJob)}
    assert ended == {"train-1-x2", "train-1-x3"}


def test_held_places_are_written_before_an_extra_worker_is_created(build, runs):
    runs.start("a", "b")
    assert runs.look(may_grow=True).actions == (RequestGrowth(attempt=1),)
    decision = runs.look(answer=GrowthPlan(build.placement("a", "b", "c"), 9), may_grow=True)
    assert runs.placed == [0, 1, 2]
    assert decision.actions == (CreateExtraWorker(attempt=1, worker=2, node="c"),)
    assert decision.status.width.reason == JobReason.SCALED_UP
    (news,) = runs.news
    assert (news.reason, news.note) == (
        "ScaledUp",
        "3 of 2-4 workers (ScaledUp): worker 2 started: no other waiting job could use their GPUs",
    )


def test_a_growth_plan_changes_no_existing_place(build, runs):
    runs.start("a", "b")
    runs.look(answer=GrowthPlan(build.placement("x", "y", "c"), 9))
    assert [each.node for each in by_worker(runs.job.status.placement)] == ["a", "b", "c"]


def test_an_extra_worker_that_is_preempted_does_not_start(build, runs):
    runs.start("a", "b")
    runs.look(
        answer=GrowthPlan(build.placement("a", "b", "c", "d"), 9), extra_preemptions={2: URGENT}
    )
    assert runs.placed == [0, 1, 3]


def test_workers_beyond_the_maximum_are_ignored(build, runs):
    runs.start("a", "b")
    runs.look(answer=GrowthPlan(build.placement(*"abcdef"), 9))
    assert runs.placed == [0, 1, 2, 3]


@pytest.mark.parametrize(("answer", "seconds"), [(PlannerBusy(), 1), (NoGrowth(), 5)])
def test_growth_is_requested_again_later_if_there_are_no_places(build, runs, answer, seconds):
    runs.start("a", "b")
    decision = runs.look(answer=answer, may_grow=True)
    assert (decision.actions, decision.again_at) == ((), build.at(20 + seconds))


def test_a_preempted_extra_worker_leaves_the_status_before_its_job_is_deleted(wide):
    decision = wide.look(jobs=wide.jobs, pods=wide.pods, extra_preemptions={3: URGENT})
    assert wide.placed == [0, 1, 2]
    assert decision.actions == (DeleteJob(name="train-1-x3", uid="uid-of-x3", attempt=1),)
    assert (decision.status.phase, decision.status.attempt) == ("Running", 1)
    assert decision.status.attempts[-1].outcome is None


def test_the_event_names_the_preemptor_of_extra_workers_and_the_reason(wide):
    wide.look(jobs=wide.jobs, pods=wide.pods, extra_preemptions={2: URGENT, 3: URGENT})
    (news,) = wide.news
    assert (news.reason, news.note) == (
        "ScaledDown",
        "2 of 2-4 workers (ElasticScaleDown): workers 2,3 ended: stopped for GPUJob urgent, "
        + PREEMPTION_TEXTS["ElasticScaleDown"],
    )


def test_the_name_of_a_preemptor_in_another_namespace_is_omitted(wide):
    far = dataclasses.replace(URGENT, preemptor=("other", "secret"))
    status = wide.look(jobs=wide.jobs, pods=wide.pods, extra_preemptions={3: far}).status
    assert "secret" not in status.width.message
    assert "a job of another namespace" in status.width.message


def test_a_failed_extra_worker_releases_its_place_and_the_attempt_continues(build, wide):
    broken = pod_of(build, 3, node="d", phase="Failed", exit_code=1, ended=19)
    decision = wide.look(jobs=wide.jobs, pods=(wide.pods[0], broken), now=30)
    assert wide.placed == [0, 1, 2]
    assert decision.status.phase == "Running"
    assert decision.status.width.reason == JobReason.WORKER_FAILED
    assert [each.name for each in decision.actions] == ["train-1-x3"]


def test_an_extra_worker_on_a_lost_node_releases_its_place(build, wide):
    lost = pod_of(build, 2, node="c", deleted=25, disrupted=(25, "DeletionByTaintManager"))
    decision = wide.look(jobs=wide.jobs, pods=(lost, wide.pods[1]), now=30)
    assert wide.placed == [0, 1, 3]
    assert decision.status.phase == "Running"
    assert decision.status.width.reason == "DeletionByTaintManager"


def test_a_drained_extra_worker_that_exits_0_has_not_completed(build, wide):
    drained = pod_of(build, 3, node="d", phase="Succeeded", exit_code=0, ended=20, deleted=19)
    decision = wide.look(jobs=wide.jobs, pods=(wide.pods[0], drained), now=30)
    assert wide.placed == [0, 1, 2]
    assert decision.status.width.reason == JobReason.POD_DELETED


def test_an_extra_worker_that_is_never_bound_releases_its_place(build, wide):
    unbound = pod_of(build, 3, node="", phase="Pending")
    look = {"jobs": wide.jobs, "pods": (wide.pods[0], unbound)}
    assert wide.look(**look, now=30).again_at == build.at(60)
    wide.look(**look, now=61)
    assert wide.placed == [0, 1, 2]


def test_extra_workers_created_before_a_refusal_stay(build, runs):
    runs.start("a", "b", "c", "d")
    answer = ExtraWorkerCreationFailure(JobReason.CREATION_FORBIDDEN, "exceeded quota")
    runs.look(answer=answer, jobs=(job_of(build, 2),), now=5)
    assert runs.placed == [0, 1, 2]


def test_an_extra_worker_whose_job_is_refused_releases_its_place(runs):
    runs.start("a", "b", "c", "d")
    answer = ExtraWorkerCreationFailure(JobReason.CREATION_FORBIDDEN, "exceeded quota")
    decision = runs.look(answer=answer)
    assert (runs.placed, decision.actions) == ([0, 1], ())
    assert "exceeded quota" in decision.status.width.message


def test_no_job_is_created_while_one_of_that_name_is_being_deleted(build, runs):
    runs.start("a", "b", "c")
    decision = runs.look(answer=NameInUse())
    assert (decision.actions, decision.again_at) == ((), build.at(21))
    going = job_of(build, 2, deleted=19)
    assert runs.look(jobs=(going,)).again_at == build.at(21)
    assert runs.placed == [0, 1, 2]


def test_a_restarted_operator_creates_missing_jobs_and_deletes_surplus_ones(build, runs):
    runs.start("a", "b", "c")
    assert runs.look(jobs=(job_of(build, 3),)).actions == (
        DeleteJob(name="train-1-x3", uid="uid-of-x3", attempt=1),
        CreateExtraWorker(attempt=1, worker=2, node="c"),
    )


def test_all_extra_workers_end_with_the_attempt(build, wide):
    failed = build.pod(1, node="b", phase="Failed", exit_code=1, ended=19)
    decision = wide.look(
        gang=("a",), jobs=wide.jobs, pods=(failed, *wide.pods), now=30, write=False
    )
    assert decision.status.phase in {"Pending", "Failed"}
    ended = {each.name for each in decision.actions if isinstance(each, DeleteJob)}
    assert {"train-1-x2", "train-1-x3"} <= ended


def test_all_extra_workers_end_when_the_job_is_suspended(build, wide):
    suspended = build.gpujob(workers=4, minWorkers=2, suspend=True, status=wide.job.status)
    wide.job = suspended
    decision = wide.look(jobs=wide.jobs, pods=wide.pods)
    assert {each.name for each in decision.actions} == {"train-1", "train-1-x2", "train-1-x3"}
    assert (decision.status.width, decision.status.placement) == (None, ())


def test_the_next_attempt_waits_for_the_end_of_extra_workers(build, wide):
    suspended = build.gpujob(workers=4, minWorkers=2, suspend=True, status=wide.job.status)
    wide.job = suspended
    wide.look(jobs=wide.jobs, pods=wide.pods)
    wide.job = build.gpujob(workers=4, minWorkers=2, status=wide.job.status)
    decision = decide(build.see(wide.job, pods=wide.pods[:1], now=40))
    assert decision.actions == ()


def test_a_gang_without_extra_workers_has_no_width(build):
    assert build.admitted(nodes=("a", "b")).status.width is None
    same = build.admitted(nodes=("a", "b"), minWorkers=2)
    assert same.status.width is None


def test_jobs_of_an_earlier_attempt_are_ignored(build, runs):
    runs.start("a", "b", "c")
    earlier = job_of(build, 2, attempt=7)
    assert runs.look(jobs=(earlier,)).actions == (CreateExtraWorker(attempt=1, worker=2, node="c"),)


def test_places_of_one_node_are_written_together(build, runs):
    runs.start("a", "b")
    runs.look(answer=GrowthPlan(build.placement("a", "b", "a"), 9))
    assert runs.job.status.placement == by_node(by_worker(build.placement("a", "b", "a")))
    assert [each.workers for each in runs.job.status.placement] == ["0,2", "1"]
