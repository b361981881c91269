# SPDX-License-Identifier: Apache-2.0
import pytest
from msgspec import structs

from gpupack_crds.gpujob_status import Attempt, GpuJobStatus
from gpupack_operator.creation_backoff import MAX_PAUSE_SECONDS, OUTCOME_SECONDS, CreationBackoff
from gpupack_operator.decision.decide import decide
from gpupack_operator.decision.model import NameInUse

WAITING = GpuJobStatus(phase="Pending")
STARTING = GpuJobStatus(phase="Admitted", attempts=(Attempt(number=1, started_at="t"),))
RUNNING = structs.replace(STARTING, phase="Running")


def ended(outcome="Infrastructure", reason="CreationForbidden", phase="Pending"):
    attempt = Attempt(
        number=1, started_at="t", finished_at="u", outcome=outcome, reason=reason, message="no more"
    )
    return GpuJobStatus(phase=phase, attempts=(attempt,))


class Gangs:
    """Gangs of one operator; `now` is the clock."""

    def __init__(self, build):
        self._build = build
        self.now = 0.0
        self.backoff = CreationBackoff(clock=lambda: self.now)

    def gang(self, name, namespace="team", uid="", **spec):
        job = self._build.gpujob(**({"workers": 2} | spec))
        meta = {"name": name, "namespace": namespace, "uid": uid or name}
        return structs.replace(job, metadata=structs.replace(job.metadata, **meta))

    def see(self, gang, *statuses, pods=0, before=WAITING):
        """Set the gang's statuses one after the other, while this number of pods exists."""
        job, name = self._build.job(), f"{gang.metadata.name}-1"
        job = structs.replace(job, metadata=structs.replace(job.metadata, name=name))
        found = [self._build.pod(index) for index in range(pods)]
        for status in statuses:
            known = structs.replace(gang, status=_timed(before))
            observation = self._build.see(known, jobs=[job], pods=found)
            self.backoff.record(structs.replace(gang, status=status), observation)
            before = status

    def poor(self, name="poor", **spec):
        """A gang that did not get its pods."""
        self.see(self.gang(name, **spec), STARTING, ended())

    def lives(self, observations, **spec):
        """Admit a gang of eight and decide about these observations."""
        gang = self._build.admitted(nodes=tuple("abcdefgh"), **spec)
        self.backoff.record(gang, self._build.see(structs.replace(gang, status=WAITING)))
        for found in observations:
            observation = self._build.see(gang, **found)
            gang = self._build.after(gang, decide(observation))
            self.backoff.record(gang, observation)
        return gang.status.attempts[-1]

    def left(self, name="next", **spec):
        """Seconds until another gang may be planned; None: at once."""
        no = self.backoff.pause(self.gang(name, **spec))
        return no and no.retry_seconds


def _timed(status):
    """Times that can be read."""
    times = {"started_at": "2026-11-21T12:00:00Z"}
    attempts = tuple(structs.replace(each, **times) for each in status.attempts)
    return structs.replace(status, attempts=attempts)


@pytest.fixture
def gangs(build):
    return Gangs(build)


def test_a_pause_applies_to_every_gang_of_a_namespace(gangs):
    gangs.poor()
    assert gangs.left("fresh") == 15
    assert gangs.left(namespace="other") is None
    refusal = gangs.backoff.pause(gangs.gang("fresh"))
    assert refusal.reason == "CreationForbidden"
    assert "poor: CreationForbidden: no more" in refusal.message


ONE_OF_EIGHT = {
    "its other pods ask for no GPU": lambda build: [
        {"pods": [build.pod(0), *(build.pod(i, limits={}) for i in range(1, 8))], "now": 11}
    ],
    "a quota forbids the others": lambda build: [{"pods": [build.pod(0)], "now": 11}],
    "its deadline is over": lambda build: [{"pods": [build.pod(0)], "now": 9.5}],
    "its Job is deleted": lambda build: [{"jobs": [build.job(deleted=8)], "now": 9}],
    "its pod is deleted": lambda build: [{"pods": [build.pod(0, deleted=5)], "now": 9}],
    "its pod ends": lambda build: [
        {"pods": [build.pod(0, phase="Failed", exit_code=1, ended=8)], "now": 9}
    ],
    "its Job's name is taken": lambda _: [
        {"jobs": [], "answer": NameInUse(), "now": second} for second in (1, 30, 61)
    ],
}


@pytest.mark.parametrize("how", ONE_OF_EIGHT)
def test_a_gang_that_ends_before_all_its_pods_exist_pauses_its_namespace(gangs, build, how):
    gangs.poor()
    gangs.now += 15
    seen = [{"jobs": [build.job()]} | found for found in ONE_OF_EIGHT[how](build)]
    attempt = gangs.lives(seen, activeDeadlineSeconds=9 if "deadline" in how else 99)
    assert attempt.finished_at
    assert gangs.left(workers=8) == 30


@pytest.mark.parametrize("outcome", ["Suspended", "Failed", "DeadlineExceeded", "Infrastructure"])
def test_a_namespace_pauses_after_any_outcome_without_all_pods(gangs, outcome):
    gangs.see(gangs.gang("short"), STARTING, ended(outcome, "Anything"))
    assert gangs.left() == 15


def test_a_gang_preempted_before_all_its_pods_exist_causes_no_pause(gangs):
    stopped = ended("Preempted", "InCohortReclamation")
    gangs.see(gangs.gang("victim"), STARTING, stopped)
    assert gangs.left() is None
    gangs.see(gangs.gang("victim"), STARTING, ended(), before=stopped)
    assert gangs.left() == 15


def test_a_gang_whose_shared_pods_are_refused_causes_no_pause(gangs):
    gangs.see(gangs.gang("shared"), STARTING, ended(reason="SharedPodRejected"))
    assert gangs.left() is None


def test_a_gang_that_is_deleted_before_all_its_pods_exist_pauses_its_namespace(gangs):
    gangs.see(gangs.gang("poor"), STARTING)
    gangs.backoff.record_deletion(("team", "poor"))
    assert gangs.left() == 15
    assert "poor was deleted" in gangs.backoff.pause(gangs.gang("next")).message


def test_a_gang_with_a_finalizer_that_is_being_deleted_pauses_its_namespace(gangs, build):
    gangs.see(gangs.gang("poor"), STARTING)
    gang = gangs.gang("poor")
    going = structs.replace(gang.metadata, deletion_timestamp=build.at(5))
    gangs.see(structs.replace(gang, metadata=going), STARTING, before=STARTING)
    assert gangs.left() == 15
    gangs.backoff.record_deletion(("team", "poor"))
    assert gangs.left() == 15


def test_a_gang_deleted_and_created_again_between_two_passes_pauses_its_namespace(gangs):
    gangs.see(gangs.gang("poor", uid="first"), STARTING)
    gangs.see(gangs.gang("poor", uid="second"), WAITING)
    assert gangs.left() == 15


@pytest.mark.parametrize("outcome", ["Suspended", "Failed", "Infrastructure", "deleted"])
def test_a_gang_that_had_all_its_pods_causes_no_pause(gangs, outcome):
    gang = gangs.gang("pulling")
    gangs.see(gang, STARTING)
    gangs.see(gang, STARTING, before=STARTING, pods=2)
    if outcome == "deleted":
        gangs.backoff.record_deletion(gang.key)
    else:
        gangs.see(gang, ended(outcome, "Anything"), before=STARTING)
    assert gangs.left() is None


def test_a_gang_seen_with_all_its_pods_only_at_its_end_causes_no_pause(gangs):
    gangs.see(gangs.gang("quick"), STARTING)
    gangs.see(gangs.gang("quick"), ended("Failed", "WorkerFailed"), before=STARTING, pods=2)
    assert gangs.left() is None


def test_each_pause_doubles_up_to_a_limit(gangs):
    found = []
    for index in range(8):
        gangs.poor(f"poor-{index}")
        found.append(gangs.left())
        gangs.now += found[-1]
        assert gangs.left() is None
    assert found == [15, 30, 60, 120, 240, 480, MAX_PAUSE_SECONDS, MAX_PAUSE_SECONDS]


def test_a_job_of_one_worker_pauses_its_namespace_too(gangs):
    gangs.poor(workers=1)
    assert (gangs.left(workers=1), gangs.left(workers=8)) == (15, 15)


def test_a_pause_applies_to_jobs_of_the_same_size_and_larger_ones(gangs):
    gangs.poor(workers=4)
    assert [gangs.left(workers=number) for number in (1, 3, 4, 7, 8)] == [None, None, 15, 15, 15]


def test_the_pauses_of_smaller_jobs_continue_the_series_of_larger_ones(gangs):
    gangs.poor(workers=8)
    gangs.poor(workers=1)
    assert gangs.left(workers=1) == 30


def test_one_gang_is_admitted_after_a_pause_and_the_others_wait_for_its_outcome(gangs):
    gangs.poor()
    gangs.now += 15
    gangs.see(gangs.gang("first"), STARTING)
    assert gangs.left("second") == OUTCOME_SECONDS
    gangs.see(gangs.gang("first"), RUNNING, before=STARTING, pods=2)
    assert gangs.left("second") is None


@pytest.mark.parametrize(
    "runs",
    [RUNNING, ended("Succeeded", "Completed", phase="Succeeded")],
    ids=["running", "succeeded"],
)
def test_a_running_gang_ends_the_pauses(gangs, runs):
    gangs.poor()
    gangs.see(gangs.gang("good"), STARTING)
    gangs.see(gangs.gang("good"), runs, before=STARTING, pods=2)
    assert gangs.left() is None
    gangs.poor()
    assert gangs.left() == 15


@pytest.mark.parametrize(
    "spec", [{"workers": 1}, {"workers": 8, "share": {"percent": 1, "memory": "1Gi"}}]
)
def test_a_running_job_with_a_smaller_request_ends_no_pause(gangs, spec):
    gangs.poor(workers=8)
    gangs.see(gangs.gang("less", **spec), STARTING)
    gangs.see(gangs.gang("less", **spec), RUNNING, before=STARTING, pods=spec["workers"])
    gangs.now += OUTCOME_SECONDS
    gangs.poor(workers=8)
    assert gangs.left(workers=8) == 30


def test_a_gang_that_started_before_the_pause_does_not_end_it(gangs):
    gangs.see(gangs.gang("long"), STARTING)
    gangs.see(gangs.gang("long"), RUNNING, before=STARTING, pods=2)
    gangs.poor()
    gangs.see(gangs.gang("long"), RUNNING, ended("Succeeded", phase="Succeeded"), before=RUNNING)
    assert gangs.left() == 15


def test_earlier_answers_about_a_quota_are_uncertain_while_jobs_start_and_after_a_failure(gangs):
    gangs.see(gangs.gang("good"), STARTING)
    assert (
        gangs.backoff.is_quota_uncertain("team"),
        gangs.backoff.is_quota_uncertain("other"),
    ) == (True, False)
    gangs.see(gangs.gang("good"), RUNNING, before=STARTING, pods=2)
    assert not gangs.backoff.is_quota_uncertain("team")
    gangs.poor()
    gangs.now += 16
    assert gangs.backoff.is_quota_uncertain("team")


def test_old_pauses_are_forgotten(gangs):
    gangs.poor()
    gangs.now += 15 + MAX_PAUSE_SECONDS + 1
    assert not gangs.backoff.is_quota_uncertain("team")
    gangs.poor("poor-again")
    assert gangs.left() == 15
