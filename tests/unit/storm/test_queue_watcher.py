# SPDX-License-Identifier: Apache-2.0
"""A list after a gap shows where things ended up, not the order in which they went there."""

import json

import pytest
from pod_rules import Gpu
from queue_judge import Judge, Terms
from queue_watcher import Watcher


@pytest.fixture
def watcher():
    terms = Terms(gpus={"a": Gpu("H100", 100)})
    return Watcher(Judge(terms), priorities={})


def pod(name, phase="Running"):
    held = json.dumps([{"uuid": "a", "percent": 100, "memoryMiB": 100}])
    return {
        "metadata": {
            "uid": name,
            "namespace": "x",
            "name": name,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"gpupack.dev/devices": held},
        },
        "spec": {"nodeName": "n"},
        "status": {"phase": phase},
    }


def job(name, *, outcome="", victims=()):
    attempt = {"number": 1, "startedAt": "2026-01-01T00:00:00Z", "outcome": outcome}
    preemption = {"victims": [{"attempts": list(victims)}]} if victims else {}
    return {
        "metadata": {"uid": name, "namespace": name, "name": name},
        "spec": {},
        "status": {"attempt": 1, "attempts": [attempt], "preemption": preemption},
    }


def test_a_gpu_that_changed_hands_during_a_gap_was_not_held_twice(watcher):
    watcher.on_pod("ADDED", pod("old"))
    watcher.on_pods([pod("new"), pod("old", "Succeeded")])
    assert watcher.judge.violations == {}
    watcher.on_pods([pod("newer")])
    assert (watcher.judge.violations, watcher.judge.gpus.held) == ({}, {"a": 100})


def test_a_victim_that_ended_during_a_watch_gap_is_checked_against_later_preemptors(watcher):
    watcher.on_jobs([job("j", outcome="Preempted"), job("k", victims=("j/1",))])
    assert (watcher.judge.violations, watcher.judge.preemptions.unseen) == ({}, 0)


def test_a_preemption_that_was_over_when_the_gap_ended_is_counted_as_unseen(watcher):
    watcher.on_jobs([job("j", outcome="Preempted"), job("k")])
    assert (watcher.judge.violations, watcher.judge.preemptions.unseen) == ({}, 1)


def test_a_job_that_is_missing_after_a_gap_is_gone(watcher):
    watcher.on_job("ADDED", job("j"))
    watcher.on_jobs([])
    assert list(watcher.judge.violations) == ["j/j is gone, and no user deleted it"]
