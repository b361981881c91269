# SPDX-License-Identifier: Apache-2.0
"""The tests that need torch and Triton, run where those are: in the workloads image."""

import pytest
from manifests import WORKLOADS_TEST_IMAGE

SECONDS = 1200
"""Five minutes on two cores that do nothing else: all of Triton's interpreter is computation."""


@pytest.mark.timeout(SECONDS + 60)
def test_the_kernels_are_right_in_the_image_that_runs_them(kube):
    done = kube.kubectl(
        "run", "kernels", f"--image={WORKLOADS_TEST_IMAGE}", "--restart=Never",
        "--image-pull-policy=Never",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    kube.kubectl(
        "wait", "pod/kernels", "--for=jsonpath={.status.containerStatuses[0].state.terminated}",
        f"--timeout={SECONDS}s",
    )  # fmt: skip
    report = kube.kubectl("logs", "kernels").stdout
    code = "jsonpath={.status.containerStatuses[0].state.terminated.exitCode}"
    assert kube.kubectl("get", "pod", "kernels", "-o", code).stdout == "0", report
    assert " passed" in report
