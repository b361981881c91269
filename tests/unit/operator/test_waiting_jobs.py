# SPDX-License-Identifier: Apache-2.0
"""Times at which GPUJobs request plans."""

import pytest
from gpujobs import read_gpujob

from gpupack_operator.cache import Cache
from gpupack_operator.decision.model import WaitMessage
from gpupack_operator.event_router import EventRouter
from gpupack_operator.nodes_limits import NodesLimits, NodesRequestLimiter
from gpupack_operator.preemptions import Preemptions
from gpupack_operator.waiting_jobs import Key, TurnOrder, WaitingJobs

JOB, OTHER = Key("team", "train"), Key("team", "other")


@pytest.fixture
def woken():
    return []


@pytest.fixture
def line(woken):
    return WaitingJobs(woken.append)


def test_jobs_are_woken_by_priority_and_age(build, line, woken):
    for name, priority, age in (("b", 0, 0), ("late", 0, 9), ("early", 0, 3), ("a", 9, 9)):
        line.enqueue(TurnOrder(-priority, build.at(age), Key("team", name)))
    line.remove(Key("team", "b"))
    for _ in range(4):
        line.wake_next()
    assert [key.name for key in woken] == ["a", "early", "late"]


def test_the_interval_between_requests_doubles_up_to_a_limit(build, line):
    found = []
    for _ in range(8):
        line.record_answer(JOB, generation=1, now=build.at(0))
        found.append(line.next_request_at(JOB, generation=1))
    seconds = (15, 30, 60, 120, 240, 480, 600, 600)
    assert found == [build.at(each) for each in seconds]


def test_a_notified_job_requests_a_plan_at_once(build, line, woken):
    line.record_request(JOB)
    line.record_answer(JOB, generation=1, now=build.at(0))
    line.notify(JOB)
    assert (woken, line.next_request_at(JOB, generation=1)) == ([JOB], None)
    line.record_request(JOB)
    line.record_answer(JOB, generation=1, now=build.at(0))
    assert line.next_request_at(JOB, generation=1) is not None


def test_a_notification_during_a_request_is_not_lost(build, line, woken):
    line.record_request(JOB)
    line.notify(JOB)
    line.record_answer(JOB, generation=1, now=build.at(0))
    assert (woken, line.next_request_at(JOB, generation=1)) == ([JOB], None)


def test_a_changed_spec_requires_a_new_request(build, line):
    line.record_answer(JOB, generation=1, now=build.at(0))
    assert line.next_request_at(JOB, generation=2) is None


def test_all_waiting_jobs_request_again_after_a_restart_of_the_queue(build, line, woken):
    line.record_answer(JOB, generation=1, now=build.at(0))
    line.record_request(OTHER)
    line.notify_all()
    line.record_answer(OTHER, generation=1, now=build.at(0))
    assert woken == [JOB, OTHER]
    assert [line.next_request_at(key, generation=1) for key in (JOB, OTHER)] == [None, None]


def test_a_failed_request_discards_the_earlier_answer(build, line):
    line.record_answer(JOB, generation=1, now=build.at(0))
    line.record_failure(JOB)
    line.record_failure(JOB)
    assert (line.next_request_at(JOB, generation=1), line.failures(JOB)) == (None, 2)
    line.record_answer(JOB, generation=1, now=build.at(0))
    assert line.failures(JOB) == 0


def test_nothing_is_kept_of_a_job_that_no_longer_waits(build, line):
    line.record_answer(JOB, generation=1, now=build.at(0))
    line.set_wait_message(JOB, WaitMessage(build.at(3)))
    line.remove(JOB)
    assert (line.next_request_at(JOB, generation=1), line.wait_message(JOB)) == (None, None)
    line.set_wait_message(JOB, WaitMessage(build.at(3)))
    assert line.wait_message(JOB) is None


def test_a_deleted_job_leaves_the_line(build, line, woken):
    meta = {"namespace": "team", "name": "train", "uid": "u", "resourceVersion": "1"}
    seen = read_gpujob({"metadata": meta, "spec": {"gpus": 1}})

    class Queue:
        def add(self, key):
            pass

    line.enqueue(TurnOrder(0, build.at(0), JOB))
    EventRouter(
        Queue(), Cache(), line, Preemptions(), NodesRequestLimiter(NodesLimits(), woken.append)
    ).on_gpujob(seen, gone=True)
    line.wake_next()
    assert woken == []
