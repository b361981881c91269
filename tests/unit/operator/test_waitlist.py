# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest

from gpupack_kube.objects import Pod
from gpupack_operator.hearing import Ear
from gpupack_operator.waitlist import Key, Rank, Waitlist
from gpupack_operator.world import World, read_gpujob

FIRST, BEHIND = Key("team", "first"), Key("team", "behind")


class Heard:
    """A queue that notes what it is given."""

    def __init__(self):
        self.keys = []

    def add(self, key):
        self.keys.append(key.name)


@pytest.fixture
def waitlist(build):
    found = Waitlist()
    for name, priority, age in (("late", 0, 30), ("early", 0, 10), ("urgent", 9, 50)):
        found.refused(Rank(-priority, build.at(age), Key("team", name)), lacks_room=False)
    return found


@pytest.fixture
def heard():
    return Heard()


@pytest.fixture
def ear(waitlist, heard):
    return Ear(heard, World(), waitlist)


def meta(name, labels=None, version="1"):
    return {"namespace": "team", "name": name, "labels": labels or {}, "resourceVersion": version}


def pod_of(job, phase):
    labels = {"gpupack.dev/job": job}
    return msgspec.convert({"metadata": meta("p", labels), "status": {"phase": phase}}, Pod)


def test_priority_goes_before_age(waitlist):
    assert [key.name for key in waitlist.freed()] == ["urgent", "early", "late"]


def test_whoever_has_its_places_waits_no_longer(waitlist):
    waitlist.leave(Key("team", "urgent"))
    assert [key.name for key in waitlist.freed()] == ["early", "late"]


def test_those_in_line_are_planned_one_after_the_other_in_order(build):
    woken = []
    waitlist = Waitlist(woken.append)
    for name, priority in (("b", 0), ("c", 0), ("a", 9)):
        waitlist.line_up(Rank(-priority, build.at(0), Key("team", name)))
    waitlist.leave(Key("team", "b"))
    for _ in range(3):
        waitlist.next_turn()
    assert [key.name for key in woken] == ["a", "c"]


@pytest.fixture
def short(build):
    """Waitlists where `first` of priority 5 lacks room, or not; and who was woken."""

    def waiting(*, lacks_room=True):
        woken = []
        found = Waitlist(woken.append)
        found.refused(Rank(-5, build.at(0), FIRST), lacks_room=lacks_room)
        return found, woken

    return waiting


def test_strictly_higher_priority_that_lacks_room_goes_first(short, build):
    lower, equal = Rank(-4, build.at(9), BEHIND), Rank(-5, build.at(9), BEHIND)
    assert short()[0].ahead_of(lower) == FIRST
    assert short()[0].ahead_of(equal) is None
    assert short(lacks_room=False)[0].ahead_of(lower) is None


def test_nobody_waits_behind_a_job_that_wants_gpus_of_other_nodes(short, build):
    lower = Rank(-4, build.at(9), BEHIND, "nvidia.com/gpu")
    assert short()[0].ahead_of(lower) is None


def test_a_job_whose_priority_was_lowered_is_not_behind_itself(short, build):
    assert short()[0].ahead_of(Rank(0, build.at(0), FIRST)) is None


@pytest.mark.parametrize("ending", ["admitted", "refused for ever"])
def test_who_stands_behind_is_woken_when_the_first_no_longer_waits_for_room(short, build, ending):
    waitlist, woken = short()
    waitlist.stand_behind(Rank(0, build.at(1), BEHIND), FIRST)
    assert woken == []
    if ending == "admitted":
        waitlist.leave(FIRST)
    else:
        waitlist.refused(Rank(-5, build.at(0), FIRST), lacks_room=False)
    assert woken == [BEHIND]


def test_a_call_without_an_answer_costs_nobody_his_turn(short, build):
    waitlist, _ = short()
    waitlist.refused(Rank(-5, build.at(0), FIRST), lacks_room=None)
    assert waitlist.ahead_of(Rank(0, build.at(1), BEHIND)) == FIRST


def test_who_comes_too_late_to_stand_behind_is_woken_at_once(short, build):
    waitlist, woken = short()
    waitlist.leave(FIRST)
    waitlist.stand_behind(Rank(0, build.at(1), BEHIND), FIRST)
    assert woken == [BEHIND]


def test_patience_is_renewed_when_something_is_freed(waitlist, build):
    key = Key("team", "late")
    waitlist.refused(Rank(0, build.at(30), key), lacks_room=True)
    assert waitlist.refusals(key) == 2
    waitlist.freed()
    assert waitlist.refusals(key) == 0


def test_a_finished_pod_wakes_its_job_first_and_then_all_who_wait(ear, heard):
    ear.pod(pod_of("owner", "Succeeded"), gone=False)
    assert heard.keys == ["owner", "urgent", "early", "late"]


def test_a_running_pod_wakes_its_job_alone(ear, heard):
    ear.pod(pod_of("owner", "Running"), gone=False)
    assert heard.keys == ["owner"]


def test_a_deleted_gpujob_wakes_those_who_wait_for_its_places(ear, heard):
    ear.gpujob(read_gpujob({"metadata": meta("early"), "spec": {"gpus": 1}}), gone=True)
    assert heard.keys == ["early", "urgent", "late"]
