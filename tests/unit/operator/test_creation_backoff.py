# SPDX-License-Identifier: Apache-2.0
import pytest
from msgspec import structs

from gpupack_crds.gpujob_status import Attempt, GpuJobStatus
from gpupack_operator.creation_backoff import MAX_PAUSE_SECONDS, TRIAL_SECONDS, CreationBackoff

WAITING = GpuJobStatus(phase="Pending")
STARTING = GpuJobStatus(phase="Admitted", attempts=(Attempt(number=1, started_at="t"),))
RUNNING = structs.replace(STARTING, phase="Running")


def ended(outcome="Infrastructure", reason="CreationForbidden"):
    attempt = Attempt(
        number=1, started_at="t", finished_at="u", outcome=outcome, reason=reason, message="no more"
    )
    return GpuJobStatus(phase="Pending", attempts=(attempt,))


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

    def see(self, job, *statuses):
        """The job's status becomes one after the other."""
        before = WAITING
        for status in statuses:
            self.backoff.saw(structs.replace(job, status=status), before)
            before = status

    def left(self, name="next", **spec):
        """Seconds until another gang may be planned; None: at once."""
        no = self.backoff.pause(self.gang(name, **spec))
        return no and no.retry_seconds


@pytest.fixture
def gangs(build):
    return Gangs(build)


def test_the_next_gang_of_a_namespace_waits_whatever_its_name(gangs):
    gangs.see(gangs.gang("poor"), STARTING, ended())
    assert gangs.left("fresh") == 15
    assert gangs.left(namespace="other") is None
    assert gangs.left(workers=1) is None
    refusal = gangs.backoff.pause(gangs.gang("fresh"))
    assert (refusal.reason, refusal.lacks_room) == ("CreationForbidden", False)
    assert "no more" in refusal.message


def test_each_pause_is_twice_as_long_up_to_a_limit(gangs):
    found = []
    for index in range(8):
        gangs.see(gangs.gang(f"poor-{index}"), STARTING, ended())
        found.append(gangs.left())
        gangs.now += found[-1]
        assert gangs.left() is None
    assert found == [15, 30, 60, 120, 240, 480, MAX_PAUSE_SECONDS, MAX_PAUSE_SECONDS]


def test_after_a_pause_one_gang_is_admitted_and_the_others_wait_for_its_end(gangs):
    gangs.see(gangs.gang("poor"), STARTING, ended())
    gangs.now += 15
    gangs.see(gangs.gang("first"), STARTING)
    assert gangs.left("second") == TRIAL_SECONDS
    gangs.see(gangs.gang("first"), STARTING, RUNNING)
    assert gangs.left("second") is None


@pytest.mark.parametrize("outcome", ["Succeeded", "Failed"])
def test_a_gang_that_ended_by_itself_had_all_its_pods(gangs, outcome):
    gangs.see(gangs.gang("poor"), STARTING, ended())
    gangs.now += 15
    gangs.see(gangs.gang("short"), STARTING, ended(outcome, "Completed"))
    assert gangs.left() is None


def test_a_gang_that_its_nodes_stopped_says_nothing_of_the_namespace(gangs):
    gangs.see(gangs.gang("unlucky"), STARTING, ended(reason="NodeLost"))
    assert gangs.left() is None


def test_a_gang_that_is_deleted_before_it_runs_pauses_its_namespace(gangs):
    gangs.see(gangs.gang("poor"), STARTING)
    gangs.backoff.gone(("team", "poor"))
    assert gangs.left() == 15


def test_a_gang_that_is_suspended_before_it_runs_pauses_its_namespace(gangs):
    gangs.see(gangs.gang("poor"), STARTING, ended("Suspended", "Suspended"))
    assert gangs.left() == 15


def test_a_gang_that_was_deleted_and_made_anew_between_two_looks_pauses_its_namespace(gangs):
    gangs.see(gangs.gang("poor", uid="first"), STARTING)
    gangs.see(gangs.gang("poor", uid="second"), WAITING)
    assert gangs.left() == 15


def test_a_gang_that_ran_may_be_deleted(gangs):
    gangs.see(gangs.gang("good"), STARTING, RUNNING)
    gangs.backoff.gone(("team", "good"))
    assert gangs.left() is None


def test_what_was_long_ago_is_forgotten(gangs):
    gangs.see(gangs.gang("poor"), STARTING, ended())
    gangs.now += 15 + MAX_PAUSE_SECONDS + 1
    gangs.see(gangs.gang("other", namespace="other"), STARTING, ended())
    gangs.see(gangs.gang("poor-again"), STARTING, ended())
    assert gangs.left() == 15
