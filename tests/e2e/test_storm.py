# SPDX-License-Identifier: Apache-2.0
"""Gangs of whole GPUs and of shares at once on sixteen GPUs; the judge is the kernel's lock.

tests/storm is the same at full size and with everything killed three times.
"""

import json

import pytest
from agreement import views_of_annotations, views_of_containers, views_of_status
from chaos import PARTS, killing
from harness import condition, unsuccessful, wait_for
from storms import ebb, flood, mixed, tide

SEED = 20261121


def attempts(jobs):
    return [attempt for job in jobs.values() for attempt in job["status"]["attempts"]]


def without_results(jobs):
    """Return the jobs with workers without a result, with the status messages."""
    return {
        name: condition(job, "ResultsValid")
        for name, job in jobs.items()
        if len(job["status"].get("results", ())) != job["spec"].get("workers", 1)
    }


def test_all_gangs_of_a_storm_succeed_without_oversubscription(kube, judged, refusals, peaks, idle):
    storm = mixed(judged, jobs=30, servers=0, seed=SEED)
    storm.submit(kube)
    jobs = kube.wait_finished(storm.names, seconds=240)
    assert refusals() == []
    assert unsuccessful(jobs) == {}
    assert {attempt["outcome"] for attempt in attempts(jobs)} == {"Succeeded"}
    assert without_results(jobs) == {}
    assert views_of_status(jobs) == views_of_containers(jobs) == views_of_annotations(kube)
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
    assert views_of_status(jobs) == views_of_containers(jobs)
    assert len(flood(kube, storm.servers, seconds=120)) == 10
    assert refusals() == []
