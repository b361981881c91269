# SPDX-License-Identifier: Apache-2.0
"""Sixty gangs at once on sixteen GPUs; the judge is the kernel's lock, not our ledger."""

import json

from agreement import told_by_annotations, told_by_containers, told_by_status
from chaos import PARTS, killing
from harness import wait_for

JOBS = 60
SEED = 20261121


def phases(jobs):
    return {name: job["status"]["phase"] for name, job in jobs.items()}


def attempts(jobs):
    return [attempt for job in jobs.values() for attempt in job["status"]["attempts"]]


def test_all_gangs_of_a_storm_succeed_and_no_gpu_is_shared(kube, judged, refusals, idle):
    storm = judged.storm(jobs=JOBS, seed=SEED)
    kube.submit(*storm)
    jobs = kube.wait_finished([job["metadata"]["name"] for job in storm], seconds=240)
    assert refusals() == []
    assert set(phases(jobs).values()) == {"Succeeded"}
    assert {attempt["outcome"] for attempt in attempts(jobs)} == {"Succeeded"}
    assert told_by_status(jobs) == told_by_containers(jobs) == told_by_annotations(kube)


def test_a_storm_survives_every_part_being_killed(kube, cluster, judged, refusals, idle, capsys):
    storm = judged.storm(jobs=JOBS, seed=SEED + 1)
    with killing(cluster, seed=SEED, every_seconds=(1.0, 4.0)) as killed:
        kube.submit(*storm)
        wait_for(lambda: set(killed()) == set(PARTS), seconds=60, what="every part was killed once")
    jobs = kube.wait_finished([job["metadata"]["name"] for job in storm], seconds=300)
    again = [attempt for attempt in attempts(jobs) if attempt["outcome"] != "Succeeded"]
    with capsys.disabled():
        print(f"\nkilled: {', '.join(killed())}; infrastructure attempts: {json.dumps(again)}")
    assert refusals() == []
    assert set(phases(jobs).values()) == {"Succeeded"}
    assert {attempt["outcome"] for attempt in again} <= {"Infrastructure"}
    assert told_by_status(jobs) == told_by_containers(jobs)
