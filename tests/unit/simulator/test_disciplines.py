# SPDX-License-Identifier: Apache-2.0
import pytest
from simulator_builders import ends, job, node, run, some_jobs, starts

from gpupack_placement import NodeName
from gpupack_queue.reservations.backfill_reservations import BackfillReservations
from gpupack_simulator import DISCIPLINES, Breakdown, Component
from gpupack_simulator.engine import dispatcher

BLOCKED = [
    job("runs", 3, lasts=10),
    job("large", 4, at=1, lasts=5),
    job("small", 1, at=2, lasts=20),
]


def test_drop_refuses_a_job_that_does_not_fit_on_arrival():
    course = run([node("a")], BLOCKED, discipline="drop")
    assert ends(course) == {"runs": "succeeded", "large": "dropped", "small": "succeeded"}
    assert course.jobs[1].wait is None


def test_drop_refuses_shares_on_a_cluster_without_any_gpu():
    jobs = [job("cpu", 0, cpu=1000, lasts=2), job("one", share=500), job("two", share=500, at=3)]
    course = run([node("a", 0)], jobs, discipline="drop")
    assert ends(course) == {"cpu": "succeeded", "one": "dropped", "two": "dropped"}


def test_fifo_lets_no_job_overtake():
    course = run([node("a")], BLOCKED, discipline="fifo")
    assert starts(course) == {"runs": 0, "large": 10, "small": 15}


def test_fifo_skip_passes_over_a_job_that_does_not_fit():
    course = run([node("a")], BLOCKED, discipline="fifo-skip")
    assert starts(course) == {"runs": 0, "small": 2, "large": 22}


def test_backfill_refuses_a_later_job_that_would_delay_the_first():
    course = run([node("a")], BLOCKED, discipline="backfill")
    assert starts(course) == {"runs": 0, "large": 10, "small": 15}


def test_backfill_lets_a_later_job_go_first_that_ends_in_time():
    jobs = [*BLOCKED, job("brief", 1, at=3, lasts=7)]
    course = run([node("a")], jobs, discipline="backfill")
    assert starts(course) == {"runs": 0, "brief": 3, "large": 10, "small": 15}


def test_backfill_lets_a_long_job_go_first_that_needs_nothing_of_the_first():
    nodes = [node("a", 4), node("b", 1)]
    jobs = [
        job("runs", 4, lasts=10),
        job("large", 4, at=1, lasts=5),
        job("long", 1, at=2, lasts=99),
    ]
    assert starts(run(nodes, jobs, discipline="backfill")) == {"runs": 0, "long": 2, "large": 10}


def test_backfill_never_starts_the_first_in_line_later_than_fifo_does_when_all_are_alike():
    for seed in range(3):
        jobs = some_jobs(seed, jobs=40, gpus=(1,), workers=(1,))
        fifo, backfill = (
            starts(run([node("a", 3)], jobs, discipline=name)) for name in ("fifo", "backfill")
        )
        assert sum(backfill.values()) <= sum(fifo.values())


@pytest.mark.parametrize("seed", range(4))
def test_backfill_keeps_the_reservation_of_the_queue_head(seed, monkeypatch):
    promised = {}
    real = BackfillReservations.all

    def noted(self):
        for room in real(self):
            assert promised.setdefault(room.job.id, room.start_at) == room.start_at
        return self._computed

    monkeypatch.setattr(BackfillReservations, "all", noted)
    nodes = [node("a", 4, cpu=12_000), node("b", 3, cpu=12_000)]
    started = starts(run(nodes, some_jobs(seed), "best-fit", discipline="backfill"))
    assert promised
    assert all(started[name] <= at for name, at in promised.items())


def test_backfill_recomputes_reservations_after_a_failure():
    jobs = [
        job("runs", 4, lasts=9),
        job("large", 4, at=1, lasts=2),
        job("small", 1, at=2, lasts=9),
        job("late", 1, at=4, lasts=9),
    ]
    broken = (Breakdown(Component(NodeName("a")), 3, 20),)
    course = run([node("a"), node("b", 1)], jobs, discipline="backfill", breakdowns=broken)
    assert starts(course) == {"runs": 20, "small": 2, "late": 11, "large": 29}


def test_priority_goes_before_arrival_and_preempts_no_job():
    jobs = [
        job("runs", 4, lasts=10),
        job("early", 4, at=1, lasts=1),
        job("urgent", 4, at=2, lasts=1, priority=5),
    ]
    course = run([node("a")], jobs, discipline="priority")
    assert starts(course) == {"runs": 0, "urgent": 10, "early": 11}


def test_jobs_of_one_priority_go_by_arrival():
    jobs = [job("runs", 4, lasts=3), job("one", 4, at=1, lasts=1), job("two", 4, at=2, lasts=1)]
    assert starts(run([node("a")], jobs, discipline="priority"))["one"] == 3


@pytest.mark.parametrize("discipline", sorted(DISCIPLINES))
def test_a_queue_that_skips_failed_requests_decides_as_one_that_tries_every_job(
    discipline, monkeypatch
):
    def forgetful(pending, request_class, cluster):
        request_class.failed_at_release = None
        return True

    nodes = [node("a", 4, cpu=12_000), node("b", 3, cpu=12_000)]
    remembered = run(nodes, some_jobs(2), "best-fit", discipline=discipline)
    monkeypatch.setattr("gpupack_queue.pending.pending_jobs.PendingJobs.may_fit", forgetful)
    assert run(nodes, some_jobs(2), "best-fit", discipline=discipline).jobs == remembered.jobs


def test_a_long_queue_costs_no_decision_while_nothing_is_given_back(monkeypatch):
    decisions = []
    place = dispatcher.q.place_by_policy
    monkeypatch.setattr(
        dispatcher.q, "place_by_policy", lambda *given: decisions.append(given) or place(*given)
    )
    jobs = [job(f"job-{n}", at=n) for n in range(300)]
    run([node("a", 1)], jobs, discipline="fifo-skip", until=400)
    assert len(decisions) == 2
