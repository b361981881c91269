# SPDX-License-Identifier: Apache-2.0
import contextlib

import pytest
from extender_builders import owner, pod

from gpupack_crds import names
from gpupack_crds.gpujob import MAX_WORKERS
from gpupack_scheduler.ledger.workers import MAX_ATTEMPTS, worker_of


def labelled(attempt, index="0"):
    """A pod that says by its labels and its owner to be a worker; both are its author's words."""
    labels = {
        names.JOB_LABEL: "a",
        names.JOB_UID_LABEL: "u",
        names.ATTEMPT_LABEL: attempt,
        names.INDEX_LABEL: index,
    }
    return pod("p", labels=labels, ownerReferences=[owner(f"a-{read(attempt)}")])


def read(label):
    """As Python reads it, which takes more for a number than a label of ours can be."""
    with contextlib.suppress(ValueError):
        return int(label)
    return 0


def test_a_worker_is_identified_by_its_labels_within_the_limits_of_a_job():
    worker = worker_of(labelled(str(MAX_ATTEMPTS), str(MAX_WORKERS - 1)))
    assert (worker.attempt.number, worker.index) == (MAX_ATTEMPTS, MAX_WORKERS - 1)


@pytest.mark.parametrize(
    "attempt", ["1" + "0" * 20, "9" * 63, str(MAX_ATTEMPTS + 1), "1_0", "0", "-1", "", "one"]
)
def test_a_pod_that_names_an_attempt_that_there_cannot_be_is_no_worker(attempt):
    assert worker_of(labelled(attempt)) is None


@pytest.mark.parametrize("index", [str(MAX_WORKERS), "9" * 63, "1_0", "-1", "", "one"])
def test_a_pod_that_names_a_worker_that_there_cannot_be_is_none(index):
    assert worker_of(labelled("1", index)) is None
