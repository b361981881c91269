# SPDX-License-Identifier: Apache-2.0
"""Backfill is that of a plain EASY, which counts GPUs, where every GPU is a node."""

import heapq
from math import log2
from random import Random

import pytest
from simulator_builders import job, node, run, starts


def easy_starts(gpus, jobs):
    """Return the start of each job: the first reserves a number of GPUs, and no particular ones."""
    arriving, queue, running, started, free = list(jobs), [], [], {}, gpus
    while arriving or running:
        now = min([running[0][0]] if running else [], default=float("inf"))
        now = min(now, arriving[0].arrival if arriving else float("inf"))
        while running and running[0][0] <= now:
            free += heapq.heappop(running)[1]
        while arriving and arriving[0].arrival <= now:
            queue.append(arriving.pop(0))
        started_now, free = _start(queue, running, free, now)
        for one in started_now:
            queue.remove(one)
            started[one.id] = now
            heapq.heappush(running, (now + one.duration, one.workers))
    return started


def _start(queue, running, free, now):
    found, ends, waiting = [], [*running], [*queue]
    while waiting and waiting[0].workers <= free:
        one = waiting.pop(0)
        free -= one.workers
        found.append(one)
        ends.append((now + one.duration, one.workers))
    if not waiting:
        return found, free
    head, *others = waiting
    shadow, then = now, free
    for at, workers in sorted(ends):
        if then >= head.workers and at > shadow:
            break
        shadow, then = at, then + workers
    extra = then - head.workers
    for one in others:
        in_time = now + one.duration <= shadow
        if one.workers <= free and (in_time or one.workers <= extra):
            free -= one.workers
            extra -= 0 if in_time else one.workers
            found.append(one)
    return found, free


def workload(seed, jobs, gpus, load):
    """Sizes are mostly powers of two, times log-normal, arrivals random, as in many logs."""
    random, at, made = Random(seed), 0.0, []
    for number in range(jobs):
        wide = 2 ** random.randint(0, int(log2(gpus)))
        workers = wide if random.random() < 0.75 else random.randint(1, gpus)
        lasts = min(random.lognormvariate(1.0, 1.5), 300.0)
        made.append(job(f"j{number}", workers=workers, lasts=lasts, at=at))
        at += random.expovariate(load * gpus / (0.3 * gpus * 6.0))
    return made


def single_gpus(count):
    return [node(f"n{number}", 1) for number in range(count)]


def test_a_reservation_takes_no_idle_gpu_that_it_does_not_need():
    """`large` needs any four of five GPUs at 10; one that is idle until then is left over."""
    jobs = [
        job("first", lasts=0.2),
        job("a", workers=4, lasts=10, at=0.1),
        job("large", workers=4, lasts=10, at=0.5),
        job("small", lasts=100, at=1),
    ]
    found = starts(run(single_gpus(5), jobs, discipline="backfill"))
    assert found == easy_starts(5, jobs)
    assert (found["small"], found["large"]) == (1, 10.1)


@pytest.mark.parametrize(("seed", "jobs", "gpus"), [(1, 801, 32), (2, 300, 16), (3, 300, 8)])
@pytest.mark.parametrize("policy", ["first-fit", "best-fit"])
def test_waits_are_those_of_a_plain_easy_within_a_thousandth(seed, jobs, gpus, policy):
    made = workload(seed, jobs, gpus, load=0.9)
    easy = easy_starts(gpus, made)
    found = starts(run(single_gpus(gpus), made, policy, discipline="backfill"))
    waits, expected = (
        sum(start[one.id] - one.arrival for one in made) / jobs for start in (found, easy)
    )
    assert expected > 1
    assert waits <= expected * 1.001
