# SPDX-License-Identifier: Apache-2.0
"""Who asks for a plan, and when again."""

import pytest
from gpujobs import read_gpujob

from gpupack_operator.cache import Cache
from gpupack_operator.decision.model import Told
from gpupack_operator.event_router import EventRouter
from gpupack_operator.nodes_bounds import Bounds, NodesBounds
from gpupack_operator.plan_line import Key, PlanLine, TurnOrder
from gpupack_operator.preemptions import Preemptions

JOB, OTHER = Key("team", "train"), Key("team", "other")


@pytest.fixture
def woken():
    return []


@pytest.fixture
def line(woken):
    return PlanLine(woken.append)


def test_those_in_line_are_planned_one_after_the_other_in_order(build, line, woken):
    for name, priority, age in (("b", 0, 0), ("late", 0, 9), ("early", 0, 3), ("a", 9, 9)):
        line.line_up(TurnOrder(-priority, build.at(age), Key("team", name)))
    line.leave(Key("team", "b"))
    for _ in range(4):
        line.next_turn()
    assert [key.name for key in woken] == ["a", "early", "late"]


def test_whom_the_queue_knows_asks_again_later_each_time(build, line):
    found = []
    for _ in range(8):
        line.waits(JOB, generation=1, now=build.at(0))
        found.append(line.asked_until(JOB, generation=1))
    seconds = (15, 30, 60, 120, 240, 480, 600, 600)
    assert found == [build.at(each) for each in seconds]


def test_whose_turn_has_come_asks_at_once(build, line, woken):
    line.asks(JOB)
    line.waits(JOB, generation=1, now=build.at(0))
    line.called(JOB)
    assert (woken, line.asked_until(JOB, generation=1)) == ([JOB], None)
    line.asks(JOB)
    line.waits(JOB, generation=1, now=build.at(0))
    assert line.asked_until(JOB, generation=1) is not None


def test_a_turn_that_comes_while_the_answer_is_on_its_way_is_not_lost(build, line, woken):
    line.asks(JOB)
    line.called(JOB)
    line.waits(JOB, generation=1, now=build.at(0))
    assert (woken, line.asked_until(JOB, generation=1)) == ([JOB], None)


def test_a_spec_that_was_changed_is_asked_for_anew(build, line):
    line.waits(JOB, generation=1, now=build.at(0))
    assert line.asked_until(JOB, generation=2) is None


def test_all_who_wait_ask_a_queue_that_begins_anew(build, line, woken):
    line.waits(JOB, generation=1, now=build.at(0))
    line.asks(OTHER)
    line.ask_anew()
    line.waits(OTHER, generation=1, now=build.at(0))
    assert woken == [JOB, OTHER]
    assert [line.asked_until(key, generation=1) for key in (JOB, OTHER)] == [None, None]


def test_who_had_no_answer_is_not_taken_for_known(build, line):
    line.waits(JOB, generation=1, now=build.at(0))
    line.refused(JOB)
    line.refused(JOB)
    assert (line.asked_until(JOB, generation=1), line.refusals(JOB)) == (None, 2)
    line.waits(JOB, generation=1, now=build.at(0))
    assert line.refusals(JOB) == 0


def test_of_who_waits_no_longer_nothing_is_kept(build, line):
    line.waits(JOB, generation=1, now=build.at(0))
    line.tell(JOB, Told(build.at(3)))
    line.leave(JOB)
    assert (line.asked_until(JOB, generation=1), line.told(JOB)) == (None, None)
    line.tell(JOB, Told(build.at(3)))
    assert line.told(JOB) is None


def test_a_job_that_is_gone_stands_in_no_line(build, line, woken):
    meta = {"namespace": "team", "name": "train", "uid": "u", "resourceVersion": "1"}
    seen = read_gpujob({"metadata": meta, "spec": {"gpus": 1}})

    class Queue:
        def add(self, key):
            pass

    line.line_up(TurnOrder(0, build.at(0), JOB))
    EventRouter(Queue(), Cache(), line, Preemptions(), NodesBounds(Bounds(), woken.append)).gpujob(
        seen, gone=True
    )
    line.next_turn()
    assert woken == []
