# SPDX-License-Identifier: Apache-2.0
"""A worker ends with the container that has its GPUs, whatever runs next to it."""

import pytest
from harness import wait_for

FOR_EVER = ["sh", "-c", "trap 'exit 0' TERM; while true; do sleep 1; done"]


@pytest.mark.parametrize(("exit_code", "phase"), [(0, "Succeeded"), (3, "Failed")])
def test_a_container_that_never_ends_keeps_no_gpu_when_its_worker_has_ended(
    kube, judged, exit_code, phase
):
    job = judged.job("shipped", workers=2, seconds=1, exit_code=exit_code)
    spec = job["spec"]["template"]["spec"]
    (worker,) = spec["containers"]
    shipper = {"name": "shipper", "image": worker["image"], "command": FOR_EVER}
    spec |= {"containers": [worker, shipper], "terminationGracePeriodSeconds": 5}
    kube.submit(job)
    ended = kube.wait_phase("shipped", "Succeeded", "Failed", seconds=90)
    assert ended["status"]["phase"] == phase
    assert [each["outcome"] for each in ended["status"]["attempts"]] == [phase]
    wait_for(lambda: not holding(kube), seconds=90, what="no pod of the job runs")


def holding(kube):
    ended = {"Succeeded", "Failed"}
    return [pod for pod in kube.pods("shipped") if pod["status"]["phase"] not in ended]
