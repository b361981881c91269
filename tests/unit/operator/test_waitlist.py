# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest
from gpujobs import read_gpujob

from gpupack_kube.objects import Pod
from gpupack_operator.cache import Cache
from gpupack_operator.event_router import EventRouter
from gpupack_operator.waitlist import WAKE_BATCH, Key, TurnOrder, Waitlist

FIRST, BEHIND = Key("team", "first"), Key("team", "behind")


class Listener:
    """A queue that notes what it is given."""

    def __init__(self):
        self.keys = []

    def add(self, key):
        self.keys.append(key.name)


@pytest.fixture
def heard():
    return Listener()


class Timers:
    """Stands where an event loop does; `tick` lets what is due be done."""

    def __init__(self):
        self.due = []

    def call_later(self, _seconds, call):
        self.due.append(call)
        return self

    def tick(self, times=1):
        for _ in range(times):
            due, self.due = self.due, []
            for call in due:
                call()


@pytest.fixture
def timers():
    return Timers()


@pytest.fixture
def waitlist(build, heard, timers):
    found = Waitlist(heard.add, timers.call_later)
    for name, priority, age in (("late", 0, 30), ("early", 0, 10), ("urgent", 9, 50)):
        found.refused(TurnOrder(-priority, build.at(age), Key("team", name)), lacks_room=False)
    return found


@pytest.fixture
def router(waitlist, heard):
    return EventRouter(heard, Cache(), waitlist)


def meta(name, labels=None, version="1"):
    return {"namespace": "team", "name": name, "labels": labels or {}, "resourceVersion": version}


def pod_of(job, phase):
    labels = {"gpupack.dev/job": job}
    return msgspec.convert({"metadata": meta("p", labels), "status": {"phase": phase}}, Pod)


def test_priority_goes_before_age(waitlist, heard):
    waitlist.freed()
    assert heard.keys == ["urgent", "early", "late"]


def test_whoever_has_its_places_waits_no_longer(waitlist, heard):
    waitlist.leave(Key("team", "urgent"))
    waitlist.freed()
    assert heard.keys == ["early", "late"]


@pytest.fixture
def crowd(build, heard, timers):
    """10,000 who wait, in the order of their numbers."""
    found = Waitlist(heard.add, timers.call_later)
    for number in reversed(range(10_000)):
        rank = TurnOrder(0, build.at(number), Key("team", str(number)))
        found.refused(rank, lacks_room=True)
    return found


def numbers(heard):
    return [int(name) for name in heard.keys]


def test_a_thousand_events_at_once_wake_the_first_few_of_a_crowd(crowd, heard, timers):
    for _ in range(1000):
        crowd.freed()
    assert numbers(heard) == list(range(WAKE_BATCH))
    timers.tick()
    assert len(heard.keys) == 3 * WAKE_BATCH


def test_one_event_wakes_a_crowd_in_order_few_at_a_time_and_each_once(crowd, heard, timers):
    crowd.freed()
    timers.tick(10)
    assert numbers(heard) == list(range(11 * WAKE_BATCH))
    timers.tick(10_000 // WAKE_BATCH)
    assert numbers(heard) == list(range(10_000))
    assert timers.due == []


def test_the_last_is_woken_where_events_never_cease(crowd, heard, timers):
    for _ in range(10_000 // WAKE_BATCH):
        crowd.freed()
        timers.tick()
    assert "9999" in heard.keys


def test_what_is_freed_during_a_round_is_offered_to_all_by_the_next(crowd, heard, timers):
    crowd.freed()
    timers.tick(1000)
    crowd.freed()
    timers.tick(3000)
    assert [heard.keys.count(name) for name in ("5000", "9999")] == [2, 2]
    assert timers.due == []


def test_no_more_are_woken_than_can_ask_for_plans(crowd, heard, timers, build):
    for number in range(WAKE_BATCH):
        crowd.line_up(TurnOrder(0, build.at(number), Key("team", f"in line {number}")))
    crowd.freed()
    timers.tick(10)
    assert numbers(heard) == list(range(WAKE_BATCH))
    crowd.next_turn()
    timers.tick()
    assert len(heard.keys) == 2 * WAKE_BATCH + 1


def test_those_in_line_are_planned_one_after_the_other_in_order(build, timers):
    woken = []
    waitlist = Waitlist(woken.append, timers.call_later)
    for name, priority in (("b", 0), ("c", 0), ("a", 9)):
        waitlist.line_up(TurnOrder(-priority, build.at(0), Key("team", name)))
    waitlist.leave(Key("team", "b"))
    for _ in range(3):
        waitlist.next_turn()
    assert [key.name for key in woken] == ["a", "c"]


@pytest.fixture
def short(build, timers):
    """Waitlists where `first` of priority 5 lacks room, or not; and who was woken."""

    def waiting(*, lacks_room=True):
        woken = []
        found = Waitlist(woken.append, timers.call_later)
        found.refused(TurnOrder(-5, build.at(0), FIRST), lacks_room=lacks_room)
        return found, woken

    return waiting


def test_strictly_higher_priority_that_lacks_room_goes_first(short, build):
    lower, equal = TurnOrder(-4, build.at(9), BEHIND), TurnOrder(-5, build.at(9), BEHIND)
    assert short()[0].ahead_of(lower) == FIRST
    assert short()[0].ahead_of(equal) is None
    assert short(lacks_room=False)[0].ahead_of(lower) is None


def test_nobody_waits_behind_a_job_that_wants_gpus_of_other_nodes(short, build):
    lower = TurnOrder(-4, build.at(9), BEHIND, "nvidia.com/gpu")
    assert short()[0].ahead_of(lower) is None


def test_a_job_whose_priority_was_lowered_is_not_behind_itself(short, build):
    assert short()[0].ahead_of(TurnOrder(0, build.at(0), FIRST)) is None


@pytest.mark.parametrize("ending", ["admitted", "refused for ever"])
def test_who_stands_behind_is_woken_when_the_first_no_longer_waits_for_room(short, build, ending):
    waitlist, woken = short()
    waitlist.stand_behind(TurnOrder(0, build.at(1), BEHIND), FIRST)
    assert woken == []
    if ending == "admitted":
        waitlist.leave(FIRST)
    else:
        waitlist.refused(TurnOrder(-5, build.at(0), FIRST), lacks_room=False)
    assert woken == [BEHIND]


def test_a_call_without_an_answer_costs_nobody_his_turn(short, build):
    waitlist, _ = short()
    waitlist.refused(TurnOrder(-5, build.at(0), FIRST), lacks_room=None)
    assert waitlist.ahead_of(TurnOrder(0, build.at(1), BEHIND)) == FIRST


def test_who_comes_too_late_to_stand_behind_is_woken_at_once(short, build):
    waitlist, woken = short()
    waitlist.leave(FIRST)
    waitlist.stand_behind(TurnOrder(0, build.at(1), BEHIND), FIRST)
    assert woken == [BEHIND]


def test_patience_is_renewed_when_something_is_freed(waitlist, build):
    key = Key("team", "late")
    waitlist.refused(TurnOrder(0, build.at(30), key), lacks_room=True)
    assert waitlist.refusals(key) == 2
    waitlist.freed()
    assert waitlist.refusals(key) == 0


def test_a_finished_pod_wakes_its_job_first_and_then_all_who_wait(router, heard):
    router.pod(pod_of("owner", "Succeeded"), gone=False)
    assert heard.keys == ["owner", "urgent", "early", "late"]


def test_a_running_pod_wakes_its_job_alone(router, heard):
    router.pod(pod_of("owner", "Running"), gone=False)
    assert heard.keys == ["owner"]


def test_the_echo_of_our_own_write_wakes_nobody_and_that_its_job_is_gone_does(waitlist, heard):
    cache = Cache()
    seen = read_gpujob({"metadata": meta("early"), "spec": {"gpus": 1}})
    cache.wrote(seen)
    router = EventRouter(heard, cache, waitlist)
    router.gpujob(seen, gone=False)
    assert heard.keys == []
    router.gpujob(seen, gone=True)
    assert heard.keys[0] == "early"


def test_a_deleted_gpujob_wakes_those_who_wait_for_its_places(router, heard):
    router.gpujob(read_gpujob({"metadata": meta("early"), "spec": {"gpus": 1}}), gone=True)
    assert heard.keys == ["early", "urgent", "late"]
