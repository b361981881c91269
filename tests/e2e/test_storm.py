# SPDX-License-Identifier: Apache-2.0
"""Gangs of whole GPUs and of shares at once on sixteen GPUs; the judge is the kernel's lock.

tests/storm is the same at full size and with everything killed three times.
"""

import json

import pytest
from agreement import told_by_annotations, told_by_containers, told_by_status
from chaos import PARTS, killing
from harness import condition, unsuccessful, wait_for
from storms import ebb, flood, mixed, tide

SEED = 20261121


def attempts(jobs):
    return [attempt for job in jobs.values() for attempt in job["status"]["attempts"]]


def without_results(jobs):
    """Jobs some of whose workers have no result, and what the status says of that."""
    return {
        name: condition(job, "ResultsValid")
        for name, job in jobs.items()
        if len(job["status"].get("results", ())) != job["spec"].get("workers", 1)
    }


def test_all_gangs_of_a_storm_succeed_at_once_and_nothing_is_oversubscribed(
    kube, judged, refusals, peaks, idle
):
    storm = mixed(judged, jobs=30, servers=0, seed=SEED)
    storm.submit(kube)
    jobs = kube.wait_finished(storm.names, seconds=240)
    assert refusals() == []
    assert unsuccessful(jobs) == {}
    assert {attempt["outcome"] for attempt in attempts(jobs)} == {"Succeeded"}
    assert without_results(jobs) == {}
    assert told_by_status(jobs) == told_by_containers(jobs) == told_by_annotations(kube)
    assert max(peak["shares"] for peak in peaks().values()) > 1


@pytest.mark.slow
def test_a_storm_survives_every_part_being_killed(*, kube, cluster, judged, refusals, idle, tell):
    storm = mixed(judged, jobs=30, servers=4, seed=SEED + 1)
    with killing(cluster, seed=SEED, every_seconds=(1.0, 4.0), rounds=1) as killed:
        with tide(kube, storm.servers, seed=SEED, every_seconds=(1.0, 4.0)):
            storm.submit(kube)
            wait_for(lambda: len(killed()) == len(PARTS), seconds=120, what="every part was killed")
        ebb(kube, storm.servers)
        jobs = kube.wait_finished(storm.names, seconds=300)
    again = [attempt for attempt in attempts(jobs) if attempt["outcome"] != "Succeeded"]
    tell(f"killed: {', '.join(killed())}; infrastructure attempts: {json.dumps(again)}")
    assert unsuccessful(jobs) == {}
    assert {attempt["outcome"] for attempt in again} <= {"Infrastructure"}
    assert told_by_status(jobs) == told_by_containers(jobs)
    assert len(flood(kube, storm.servers, seconds=120)) == 10
    assert refusals() == []
