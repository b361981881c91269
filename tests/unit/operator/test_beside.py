# SPDX-License-Identifier: Apache-2.0
"""Workers of an elastic gang beyond the least come and go; the attempt goes on."""

import dataclasses

import pytest
from msgspec import structs

from gpupack_crds import names
from gpupack_crds.gpujob_status import PREEMPTION_TEXTS
from gpupack_crds.placement import by_node, by_worker
from gpupack_operator.decision.decide import decide
from gpupack_operator.decision.model import (
    AskGrowth,
    CreateBeside,
    CreateChildren,
    DeleteJob,
    Grown,
    NotCreatedBeside,
    NotGrown,
    NotYet,
    PlanLater,
    Planned,
    Preempted,
)
from gpupack_operator.decision.notices import notices
from gpupack_operator.decision.reasons import JobReason

URGENT = Preempted(reason="ElasticScaleDown", beneficiary=("team", "urgent"))


def job_of(build, index, *, attempt=1, **changes):
    """The Job that worker `index` has for itself."""
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
    """Its pod."""
    pod = build.pod(index, **changes)
    (owner,) = pod.metadata.owner_references
    owned = structs.replace(owner, name=f"train-1-x{index}", uid=f"uid-of-x{index}")
    return structs.replace(pod, metadata=structs.replace(pod.metadata, owner_references=(owned,)))


@pytest.fixture
def runs(build):
    """A gang of 2 to 4 with so many places; `look` decides about it."""

    class Runs:
        job = structs.replace(build.gpujob(workers=4, minWorkers=2))

        def start(self, *nodes):
            answer = Planned(build.placement(*nodes), seconds=9)
            decision = decide(build.see(self.job, answer=answer, now=0))
            self.job = build.after(self.job, decision)
            return decision

        def look(self, *, jobs=(), pods=(), gang=("a", "b"), write=True, **observed):
            mine = [build.pod(index, node=node) for index, node in enumerate(gang)]
            more = {key: observed.pop(key) for key in ("shrinks", "grows") if key in observed}
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
    """It runs with 4 workers."""
    runs.start("a", "b", "c", "d")
    runs.jobs = (job_of(build, 2), job_of(build, 3))
    runs.pods = (pod_of(build, 2, node="c"), pod_of(build, 3, node="d"))
    runs.look(jobs=runs.jobs, pods=runs.pods)
    return runs


def test_what_was_planned_beyond_the_least_stands_in_the_status_first(runs):
    decision = runs.start("a", "b", "c")
    assert decision.actions == (CreateChildren(attempt=1, deadline_seconds=None),)
    assert runs.placed == [0, 1, 2]
    assert (decision.status.width.workers, decision.status.width.column) == (3, "3 of 2-4")
    assert decision.status.gpus == "3"
    assert decision.status.message == "attempt 1 has 3 GPUs on a,b,c"


def test_each_placed_worker_gets_a_job_of_its_own_once_the_gang_has_its(runs):
    runs.start("a", "b", "c", "d")
    decision = runs.look()
    assert decision.actions == (
        CreateBeside(attempt=1, worker=2, node="c"),
        CreateBeside(attempt=1, worker=3, node="d"),
    )


def test_the_gang_runs_whether_or_not_the_others_do(runs):
    runs.start("a", "b", "c", "d")
    assert runs.look().status.phase == "Running"


def test_it_succeeds_when_its_least_have_and_the_others_end_with_it(build, wide):
    done = [build.pod(index, phase="Succeeded") for index in (0, 1)]
    decision = wide.look(gang=(), jobs=wide.jobs, pods=(*done, *wide.pods))
    assert decision.status.phase == "Succeeded"
    ended = {each.name for each in decision.actions if isinstance(each, DeleteJob)}
    assert ended == {"train-1-x2", "train-1-x3"}


def test_held_places_are_asked_for_and_written_before_anything_is_created(build, runs):
    runs.start("a", "b")
    assert runs.look(grows=True).actions == (AskGrowth(attempt=1),)
    decision = runs.look(answer=Grown(build.placement("a", "b", "c"), 9), grows=True)
    assert runs.placed == [0, 1, 2]
    assert decision.actions == (CreateBeside(attempt=1, worker=2, node="c"),)
    assert decision.status.width.reason == JobReason.SCALED_UP
    (news,) = runs.news
    assert (news.reason, news.note) == (
        "ScaledUp",
        "3 of 2-4 workers (ScaledUp): worker 2 began: nobody else who waits could use their GPUs",
    )


def test_what_is_offered_changes_no_place_that_is_written(build, runs):
    runs.start("a", "b")
    runs.look(answer=Grown(build.placement("x", "y", "c"), 9))
    assert [each.node for each in by_worker(runs.job.status.placement)] == ["a", "b", "c"]


def test_a_worker_that_is_to_end_at_once_does_not_begin(build, runs):
    runs.start("a", "b")
    runs.look(answer=Grown(build.placement("a", "b", "c", "d"), 9), shrinks={2: URGENT})
    assert runs.placed == [0, 1, 3]


def test_more_workers_than_were_asked_for_are_not_taken(build, runs):
    runs.start("a", "b")
    runs.look(answer=Grown(build.placement(*"abcdef"), 9))
    assert runs.placed == [0, 1, 2, 3]


@pytest.mark.parametrize(("answer", "seconds"), [(PlanLater(), 1), (NotGrown(), 5)])
def test_without_places_it_asks_again_later(build, runs, answer, seconds):
    runs.start("a", "b")
    decision = runs.look(answer=answer, grows=True)
    assert (decision.actions, decision.again_at) == ((), build.at(20 + seconds))


def test_who_is_to_end_for_another_is_out_of_the_status_before_its_job_is_deleted(wide):
    decision = wide.look(jobs=wide.jobs, pods=wide.pods, shrinks={3: URGENT})
    assert wide.placed == [0, 1, 2]
    assert decision.actions == (DeleteJob(name="train-1-x3", uid="uid-of-x3", attempt=1),)
    assert (decision.status.phase, decision.status.attempt) == ("Running", 1)
    assert decision.status.attempts[-1].outcome is None


def test_the_event_says_for_whom_it_shrank_and_with_which_right(wide):
    wide.look(jobs=wide.jobs, pods=wide.pods, shrinks={2: URGENT, 3: URGENT})
    (news,) = wide.news
    assert (news.reason, news.note) == (
        "ScaledDown",
        "2 of 2-4 workers (ElasticScaleDown): workers 2,3 ended: stopped for GPUJob urgent, "
        + PREEMPTION_TEXTS["ElasticScaleDown"],
    )


def test_of_another_namespace_no_name_is_told(wide):
    far = dataclasses.replace(URGENT, beneficiary=("other", "secret"))
    status = wide.look(jobs=wide.jobs, pods=wide.pods, shrinks={3: far}).status
    assert "secret" not in status.width.message
    assert "a job of another namespace" in status.width.message


def test_a_worker_that_fails_gives_its_place_back_and_the_attempt_goes_on(build, wide):
    broken = pod_of(build, 3, node="d", phase="Failed", exit_code=1, ended=19)
    decision = wide.look(jobs=wide.jobs, pods=(wide.pods[0], broken), now=30)
    assert wide.placed == [0, 1, 2]
    assert decision.status.phase == "Running"
    assert decision.status.width.reason == JobReason.WORKER_FAILED
    assert [each.name for each in decision.actions] == ["train-1-x3"]


def test_a_worker_whose_node_died_gives_its_place_back(build, wide):
    lost = pod_of(build, 2, node="c", deleted=25, disrupted=(25, "DeletionByTaintManager"))
    decision = wide.look(jobs=wide.jobs, pods=(lost, wide.pods[1]), now=30)
    assert wide.placed == [0, 1, 3]
    assert decision.status.phase == "Running"
    assert decision.status.width.reason == "DeletionByTaintManager"


def test_a_worker_that_was_drained_and_exits_0_has_not_completed(build, wide):
    drained = pod_of(build, 3, node="d", phase="Succeeded", exit_code=0, ended=20, deleted=19)
    decision = wide.look(jobs=wide.jobs, pods=(wide.pods[0], drained), now=30)
    assert wide.placed == [0, 1, 2]
    assert decision.status.width.reason == JobReason.POD_DELETED


def test_a_worker_that_is_never_bound_gives_its_place_back(build, wide):
    unbound = pod_of(build, 3, node="", phase="Pending")
    look = {"jobs": wide.jobs, "pods": (wide.pods[0], unbound)}
    assert wide.look(**look, now=30).again_at == build.at(60)
    wide.look(**look, now=61)
    assert wide.placed == [0, 1, 2]


def test_what_was_created_before_a_refusal_stays(build, runs):
    runs.start("a", "b", "c", "d")
    answer = NotCreatedBeside(JobReason.CREATION_FORBIDDEN, "exceeded quota")
    runs.look(answer=answer, jobs=(job_of(build, 2),), now=5)
    assert runs.placed == [0, 1, 2]


def test_a_worker_whose_job_is_refused_gives_its_place_back(runs):
    runs.start("a", "b", "c", "d")
    answer = NotCreatedBeside(JobReason.CREATION_FORBIDDEN, "exceeded quota")
    decision = runs.look(answer=answer)
    assert (runs.placed, decision.actions) == ([0, 1], ())
    assert "exceeded quota" in decision.status.width.message


def test_while_a_job_of_that_name_goes_nothing_is_created(build, runs):
    runs.start("a", "b", "c")
    decision = runs.look(answer=NotYet())
    assert (decision.actions, decision.again_at) == ((), build.at(21))
    going = job_of(build, 2, deleted=19)
    assert runs.look(jobs=(going,)).again_at == build.at(21)
    assert runs.placed == [0, 1, 2]


def test_after_a_restart_a_job_that_lacks_is_created_and_one_too_many_deleted(build, runs):
    runs.start("a", "b", "c")
    assert runs.look(jobs=(job_of(build, 3),)).actions == (
        DeleteJob(name="train-1-x3", uid="uid-of-x3", attempt=1),
        CreateBeside(attempt=1, worker=2, node="c"),
    )


def test_all_end_with_the_attempt(build, wide):
    failed = build.pod(1, node="b", phase="Failed", exit_code=1, ended=19)
    decision = wide.look(
        gang=("a",), jobs=wide.jobs, pods=(failed, *wide.pods), now=30, write=False
    )
    assert decision.status.phase in {"Pending", "Failed"}
    ended = {each.name for each in decision.actions if isinstance(each, DeleteJob)}
    assert {"train-1-x2", "train-1-x3"} <= ended


def test_all_end_when_the_job_is_suspended(build, wide):
    suspended = build.gpujob(workers=4, minWorkers=2, suspend=True, status=wide.job.status)
    wide.job = suspended
    decision = wide.look(jobs=wide.jobs, pods=wide.pods)
    assert {each.name for each in decision.actions} == {"train-1", "train-1-x2", "train-1-x3"}
    assert (decision.status.width, decision.status.placement) == (None, ())


def test_the_next_attempt_does_not_begin_before_they_are_gone(build, wide):
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


def test_jobs_of_an_earlier_attempt_are_none_of_this_one(build, runs):
    runs.start("a", "b", "c")
    earlier = job_of(build, 2, attempt=7)
    assert runs.look(jobs=(earlier,)).actions == (CreateBeside(attempt=1, worker=2, node="c"),)


def test_places_of_one_node_are_written_together(build, runs):
    runs.start("a", "b")
    runs.look(answer=Grown(build.placement("a", "b", "a"), 9))
    assert runs.job.status.placement == by_node(by_worker(build.placement("a", "b", "a")))
    assert [each.workers for each in runs.job.status.placement] == ["0,2", "1"]
