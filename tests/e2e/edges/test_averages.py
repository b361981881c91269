# SPDX-License-Identifier: Apache-2.0
"""A namespace's average usage is stored in GPUCohorts and outlives the process that counts it."""

import contextlib
import datetime as dt
import json

import pytest
from harness import wait_for
from parts import SCHEDULER, environment, environment_of, rolled_out

pytestmark = pytest.mark.alone

HALF_LIFE_SECONDS = 600


@contextlib.contextmanager
def half_life(system):
    """Make the queue count usage over time during the test."""
    queue = json.loads(environment_of(system, SCHEDULER, "extender")["GPUPACK_QUEUE"])
    changed = json.dumps(queue | {"halfLifeSeconds": HALF_LIFE_SECONDS})
    try:
        with environment(system, SCHEDULER, "extender", {"GPUPACK_QUEUE": changed}):
            yield
    finally:
        system.kubectl("delete", "gpucohort", "cluster", "--ignore-not-found")


def kept(kube):
    """Return the namespace's average in GPUCohort `cluster`, in GPUs, and its timestamp."""
    shown = kube.kubectl("get", "gpucohort", "cluster", "-o", "json").stdout
    status = json.loads(shown or "{}").get("status", {})
    for each in status.get("averages", ()):
        if each["namespace"] == kube.namespace:
            return float(each["gpus"]), dt.datetime.fromisoformat(status["averagedAt"]).timestamp()
    return None


def test_the_average_usage_of_a_namespace_survives_a_restart_of_the_scheduler(kube, system, judged):
    with half_life(system):
        kube.submit(judged.job("job", gpus=8, seconds=300))
        before, at = wait_for(
            lambda: found if (found := kept(kube)) and found[0] > 0.3 else None,
            seconds=150,
            what="an average is written",
        )
        kube.delete("gpujob", "job")
        system.insist("rollout", "restart", SCHEDULER)
        rolled_out(system, SCHEDULER)
        after, later = wait_for(
            lambda: found if (found := kept(kube)) and found[1] > at else None,
            seconds=150,
            what="a new process writes it",
        )
    assert 0.9 * before * 0.5 ** ((later - at) / HALF_LIFE_SECONDS) < after
