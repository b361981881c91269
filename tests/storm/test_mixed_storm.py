# SPDX-License-Identifier: Apache-2.0
"""150 GPUJobs and 10 Deployments, whole and shares, while every part is killed three times.

The judge is the kernel's locks, not our ledger (tests/e2e/judge). One storm for each seed of
STORM_SEEDS; a seed gives the same jobs and the same order of kills.
"""

import json
import os
import time
from collections import Counter

import pytest
from agreement import views_of_containers, views_of_status
from chaos import EVERY_PART, killing
from harness import annotation, wait_for
from storms import ebb, flood, mixed, tide

SEEDS = [int(seed) for seed in os.environ.get("STORM_SEEDS", "1 2 3 4 5").split()]
JOBS, SERVERS, ROUNDS = 150, 10, 3
KILLS = ROUNDS * len(EVERY_PART)
KILL_EVERY_SECONDS = (2.0, 8.0)
SCALE_EVERY_SECONDS = (1.0, 4.0)
PATIENCE_SECONDS = float(os.environ.get("STORM_PATIENCE_SECONDS", "900"))


def attempts_again(jobs):
    """Attempts that did not lead to the end of their job."""
    attempts = [attempt for job in jobs.values() for attempt in job["status"]["attempts"]]
    return [attempt for attempt in attempts if attempt["outcome"] != "Succeeded"]


def max_at_once(peaks):
    """The most that shares of one GPU held at once."""
    return {
        key: max((peak[key] for peak in peaks.values()), default=0)
        for key in ("shares", "percent", "memoryMiB")
    }


def percents(pods):
    """What the pods' annotations sum up to by GPU."""
    total = Counter()
    for pod in pods:
        total.update({device["uuid"]: device["percent"] for device in annotation(pod)})
    return total


@pytest.mark.parametrize("seed", SEEDS)
def test_a_mixed_storm_ends_well_though_every_part_is_killed_three_times(
    *, kube, cluster, judged, fresh, refusals, peaks, tell, seed
):
    storm = mixed(judged, jobs=JOBS, servers=SERVERS, seed=seed)
    begin = time.monotonic()
    with killing(
        cluster,
        seed=seed,
        every_seconds=KILL_EVERY_SECONDS,
        parts=EVERY_PART,
        rounds=ROUNDS,
        when=kube.answers,
    ) as killed:
        with tide(kube, storm.servers, seed=seed, every_seconds=SCALE_EVERY_SECONDS) as scaled:
            storm.submit(kube)
            everything = f"{KILLS} kills"
            wait_for(lambda: len(killed()) == KILLS, seconds=PATIENCE_SECONDS, what=everything)
        calm = time.monotonic()
        ended = len(kube.finished())
        ebb(kube, storm.servers)
        jobs = kube.wait_finished(storm.names, seconds=PATIENCE_SECONDS)
        finished = time.monotonic()
        pods = flood(kube, storm.servers, seconds=PATIENCE_SECONDS)
    again = attempts_again(jobs)
    tell(
        f"seed {seed}: {time.monotonic() - begin:.0f} s; {KILLS} kills in {calm - begin:.0f} s, "
        f"{ended} of {JOBS} jobs had ended by then, all after {finished - begin:.0f} s; "
        f"killed {json.dumps(Counter(killed()))}; {scaled()} times scaled; "
        f"{len(again)} attempts repeated {json.dumps(Counter(a['reason'] for a in again))}; "
        f"at most at once on one GPU: {json.dumps(max_at_once(peaks()))}"
    )
    assert refusals() == []
    assert Counter(killed()) == dict.fromkeys(EVERY_PART, ROUNDS)
    assert Counter(job["status"]["phase"] for job in jobs.values()) == {"Succeeded": JOBS}
    assert {attempt["outcome"] for attempt in again} <= {"Infrastructure"}
    assert views_of_status(jobs) == views_of_containers(jobs)
    assert max_at_once(peaks())["shares"] > 1
    assert len(pods) == sum(server.most for server in storm.servers)
    assert max(percents(pods).values()) <= 100
