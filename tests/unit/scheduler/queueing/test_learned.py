# SPDX-License-Identifier: Apache-2.0
"""What the extender learns of how long GPUJobs take, from their statuses."""

import datetime as dt
from types import SimpleNamespace

from msgspec import structs

from gpupack_scheduler.ledger.placed_job import PlacedAttempt
from gpupack_scheduler.ledger.workers import AttemptKey
from gpupack_scheduler.queueing.running.shown_jobs import LearnedDurations

BEGAN = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)


class Shown(dict):
    """GPUJobs by UID."""

    shown = dict.get


def key(name, *, namespace="team", uid="u", number=1):
    return AttemptKey(namespace=namespace, job=name, job_uid=uid, number=number)


def tried(number, seconds, outcome="Succeeded"):
    return PlacedAttempt(
        number, BEGAN, finished_at=BEGAN + dt.timedelta(seconds=seconds), outcome=outcome
    )


def learned(*jobs, counts=True):
    """Of names and their attempts."""
    shown = Shown(
        (f"u{number}", SimpleNamespace(attempt=key(name, uid=f"u{number}"), attempts=attempts))
        for number, (name, *attempts) in enumerate(jobs)
    )
    found = LearnedDurations(shown, counts=counts)
    found.see(shown)
    return found, shown


def runs(*seconds):
    return [(f"train-{number}", tried(1, each)) for number, each in enumerate(seconds)]


def test_jobs_whose_names_differ_in_a_number_are_one_kind():
    found, _ = learned(*runs(50, 60, 70, 80, 90))
    assert found.estimate(key("train-99")) == 90
    assert found.estimate(key("train-qx7bz")) == 90
    assert found.estimate(key("other")) is None
    assert found.estimate(key("train-1", namespace="others")) is None


def test_an_attempt_counts_once_however_often_its_job_changes():
    found, shown = learned(*runs(50, 60))
    for _ in range(9):
        found.see(shown)
    assert found.estimate(key("train")) is None


def test_failed_and_running_jobs_do_not_count_for_the_estimate():
    failed = [(f"train-{number}", tried(1, 3, "Failed")) for number in range(9)]
    running = ("train-10", PlacedAttempt(1, BEGAN))
    found, _ = learned(*failed, running)
    assert found.estimate(key("train")) is None


def test_a_job_that_was_preempted_for_its_duration_raises_the_estimate():
    stopped = ("train-9", tried(1, 500, "Preempted"))
    found, _ = learned(*runs(50, 60, 70, 80, 90), stopped)
    assert found.estimate(key("train")) == 500


def test_a_job_whose_end_was_written_late_took_until_its_workers_ended():
    """The operator was down for an hour."""
    late = structs.replace(tried(1, 3600), ended_at=BEGAN + dt.timedelta(seconds=90))
    found, _ = learned(*runs(50, 60, 70, 80), ("train-9", late))
    assert found.estimate(key("train")) == 90


def test_nothing_is_learned_if_learning_is_off():
    found, _ = learned(*runs(50, 60, 70, 80, 90), counts=False)
    assert found.estimate(key("train")) is None
