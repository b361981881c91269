# SPDX-License-Identifier: Apache-2.0
"""The answer of `what-if` is what happens to the job.

A tenant's jobs come and go on an idle cluster. Before each one the REST API is called; then the job
is submitted. `make test-what-if` does so TRUTH_QUESTIONS times, drawn from TRUTH_SEED.

Reservations that depend on estimates are recomputed every 5 s, by the extender and by the API each
at its own time. One that changes between the what-if and the submission makes the answer outdated.
So a job with another outcome is submitted again after a longer time without changes
(it must match then).
"""

import collections
import os
import random
import time

import pytest
from followed import following
from questions import Asker, drawn
from rest_clients import client, viewer

QUESTIONS = int(os.environ.get("TRUTH_QUESTIONS", "8"))
SEED = int(os.environ.get("TRUTH_SEED", "1"))


@pytest.fixture
def asker(kube, system):
    with client(system) as api, viewer(kube, "gpupack-edit") as token, following(kube) as followed:
        api.headers["Authorization"] = f"Bearer {token}"
        yield Asker(kube, api, followed)


@pytest.mark.slow
@pytest.mark.alone
def test_a_what_if_predicts_what_happens_to_the_job(asker, judged, tell):
    chance, counts = random.Random(f"{SEED}:what-if"), collections.Counter()
    began = time.monotonic()
    for number in range(QUESTIONS):
        asker.thin_out(chance)
        job = drawn(judged, f"asked-{number}", chance)
        mix = asker.learned()
        expected = asker.predict(job)
        outcome = asker.submit(job, expected)
        if outcome != expected and asker.learned() != mix:
            counts["Relearned", False] += 1
            continue
        if outcome != expected:
            counts["Changed", False] += 1
            tell(f"question {number}: {expected} was predicted, {outcome} came; {asker.said()}")
            asker.withdraw(job)
            mix = asker.learned()
            expected = asker.predict(job)
            outcome = asker.submit(job, expected)
        if outcome != expected and asker.learned() != mix:
            counts["Relearned", False] += 1
            continue
        assert outcome == expected, (
            f"question {number} of seed {SEED}: {expected} was predicted, {outcome} came, at first "
            f"{asker.late[-1]}; {asker.said()}"
        )
        counts[expected.outcome, bool(expected.stopped)] += 1
    figures = ", ".join(
        f"{n} {o}{' instead of others' * s}" for (o, s), n in sorted(counts.items())
    )
    took = f"{len(asker.late)} of them by a later search; {time.monotonic() - began:.0f} s"
    tell(f"{QUESTIONS} questions: {figures}; {took}")
    assert counts["Changed", False] <= max(QUESTIONS // 100, 1)
    assert counts["Starts", False]
    assert counts["Waits", False]
