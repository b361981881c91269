# SPDX-License-Identifier: Apache-2.0
"""What `what-if` tells is what then becomes of the job.

A tenant's jobs come and go on an idle cluster. Before each one the REST API is asked; then it is
submitted. `make test-what-if` asks TRUTH_QUESTIONS of them, drawn from TRUTH_SEED.

Rooms that rest on guesses are foreseen anew every 5 s, by the extender and by the API each at its
own time; one that changes between the question and the submission makes the answer an old one. So
what comes otherwise is asked again when nothing has changed for longer, and has to come then.
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
def test_what_is_told_of_a_job_is_what_becomes_of_it(asker, judged, tell):
    chance, told = random.Random(f"{SEED}:what-if"), collections.Counter()
    began = time.monotonic()
    for number in range(QUESTIONS):
        asker.thin_out(chance)
        job = drawn(judged, f"asked-{number}", chance)
        mix = asker.learned()
        expected = asker.told(job)
        came = asker.came(job, expected)
        if came != expected and asker.learned() != mix:
            told["Relearned", False] += 1
            continue
        if came != expected:
            told["Changed", False] += 1
            tell(f"question {number}: {expected} was told, {came} came; {asker.said()}")
            asker.withdraw(job)
            mix = asker.learned()
            expected = asker.told(job)
            came = asker.came(job, expected)
        if came != expected and asker.learned() != mix:
            told["Relearned", False] += 1
            continue
        assert came == expected, (
            f"question {number} of seed {SEED}: {expected} was told, {came} came, at first "
            f"{asker.late[-1]}; {asker.said()}"
        )
        told[expected.outcome, bool(expected.stopped)] += 1
    figures = ", ".join(f"{n} {o}{' instead of others' * s}" for (o, s), n in sorted(told.items()))
    took = f"{len(asker.late)} of them by a later search; {time.monotonic() - began:.0f} s"
    tell(f"{QUESTIONS} questions: {figures}; {took}")
    assert told["Changed", False] <= max(QUESTIONS // 100, 1)
    assert told["Starts", False]
    assert told["Waits", False]
