# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_operator.hearing import Ear
from gpupack_operator.waitlist import Key, Waitlist
from gpupack_operator.world import World


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
        found.refused(Key("team", name), priority=priority, created=build.at(age))
    return found


@pytest.fixture
def heard():
    return Heard()


@pytest.fixture
def ear(waitlist, heard):
    return Ear(heard, World(), waitlist)


def body(name, *, phase="Running", labels=None, version="1"):
    meta = {"namespace": "team", "name": name, "labels": labels or {}, "resourceVersion": version}
    return {"metadata": meta, "status": {"phase": phase}}


def test_priority_goes_before_age(waitlist):
    assert [key.name for key in waitlist.freed()] == ["urgent", "early", "late"]


def test_whoever_has_its_places_waits_no_longer(waitlist):
    waitlist.leave(Key("team", "urgent"))
    assert [key.name for key in waitlist.freed()] == ["early", "late"]


def test_patience_is_renewed_when_something_is_freed(waitlist, build):
    key = Key("team", "late")
    waitlist.refused(key, priority=0, created=build.at(30))
    assert waitlist.refusals(key) == 2
    waitlist.freed()
    assert waitlist.refusals(key) == 0


def test_a_finished_pod_wakes_its_job_first_and_then_all_who_wait(ear, heard):
    ear.pod(body("p", phase="Succeeded", labels={"gpupack.dev/job": "owner"}), deleted=False)
    assert heard.keys == ["owner", "urgent", "early", "late"]


def test_a_running_pod_wakes_its_job_alone(ear, heard):
    ear.pod(body("p", labels={"gpupack.dev/job": "owner"}), deleted=False)
    assert heard.keys == ["owner"]


def test_a_deleted_gpujob_wakes_those_who_wait_for_its_places(ear, heard):
    ear.gpujob(body("early"), deleted=True)
    assert heard.keys == ["early", "urgent", "late"]
