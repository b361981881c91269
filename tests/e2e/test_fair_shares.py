# SPDX-License-Identifier: Apache-2.0
"""Who gets how much when all want more, and how soon what is lent comes back."""

import datetime as dt
import time

import pytest
from harness import wait_for

pytestmark = pytest.mark.alone

GPUS = 16
"""Of the dev cluster."""


def quota(*gpus, **spec):
    return {
        "apiVersion": "gpupack.dev/v1beta1",
        "kind": "GPUQuota",
        "metadata": {"name": "default"},
        "spec": {"gpus": list(gpus), **spec},
    }


def moment(written):
    return dt.datetime.fromisoformat(written).timestamp()


def gpu_seconds(kube, since, until):
    """GPUs times seconds for which the namespace's attempts held them between two moments."""
    total = 0.0
    for job in kube.gpujobs():
        for attempt in job.get("status", {}).get("attempts", ()):
            began = max(moment(attempt["startedAt"]), since)
            ended = min(moment(attempt.get("finishedAt") or "9999-01-01T00:00:00Z"), until)
            total += max(ended - began, 0.0) * job["spec"]["gpus"] * job["spec"].get("workers", 1)
    return total


def running(kube):
    return sum(job.get("status", {}).get("phase") == "Running" for job in kube.gpujobs())


SECONDS = 60
TOLERANCE = 0.1
"""In a minute some thirty jobs start; each is a part in thirty, so that 5 % would be luck."""


@pytest.mark.slow
def test_namespaces_of_weight_3_to_1_get_gpu_seconds_as_3_to_1(kube, others, judged, tell):
    light = others("light")
    light.submit(quota(weight=1))
    kube.submit(quota(weight=3))
    light.submit(*(judged.job(f"light-{n}", gpus=2, seconds=10) for n in range(40)))
    wait_for(lambda: running(light) >= GPUS // 2, seconds=90, what="one has all GPUs")
    kube.submit(*(judged.job(f"heavy-{n}", gpus=2, seconds=10) for n in range(70)))
    wait_for(lambda: running(kube) >= 3 * GPUS // 8, seconds=90, what="the other has its part")
    since = time.time()
    time.sleep(SECONDS)
    until = time.time()
    heavy, other = gpu_seconds(kube, since, until), gpu_seconds(light, since, until)
    tell(f"{heavy:.0f} and {other:.0f} GPU-seconds, {heavy / other:.2f}:1")
    waiting = [
        sum(job["status"]["phase"] == "Pending" for job in of.gpujobs()) for of in (kube, light)
    ]
    assert min(waiting) > 0
    assert heavy / other == pytest.approx(3.0, rel=TOLERANCE)


GRACE_SECONDS = 10


@pytest.mark.slow
def test_borrowed_gpus_are_reclaimed_within_15_seconds_and_the_grace_period(
    kube, others, judged, tell
):
    """It uses its whole grace period."""
    cohort = {
        "apiVersion": "gpupack.dev/v1beta1",
        "kind": "GPUCohort",
        "metadata": {"name": kube.namespace},
        "spec": {"minRunSeconds": 0},
    }
    kube.submit(cohort)
    try:
        kube.submit(quota({"model": "*", "nominal": 4}))
        guest = others("guest")
        guest.submit(quota(cohort=kube.namespace))
        borrower = judged.job("borrower", workers=2, gpus=8)
        pod = borrower["spec"]["template"]["spec"]
        pod["terminationGracePeriodSeconds"] = GRACE_SECONDS
        pod["containers"][0]["command"] = ["sh", "-c", "trap : TERM; while :; do sleep 1; done"]
        guest.submit(borrower)
        guest.wait_phase("borrower", "Running")
        asked = time.monotonic()
        kube.submit(judged.job("owner", gpus=4, seconds=5))
        kube.wait_phase("owner", "Running", "Succeeded", seconds=15 + GRACE_SECONDS)
        tell(f"given back after {time.monotonic() - asked:.1f} s, {GRACE_SECONDS} s of them grace")
    finally:
        kube.delete("gpucohort", kube.namespace)
