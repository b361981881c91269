# SPDX-License-Identifier: Apache-2.0
"""The maximum run time of a cohort ends GPUJobs and standalone pods."""

import json

import pytest
from harness import wait_for

pytestmark = pytest.mark.slow

LIMIT_SECONDS = 15


@pytest.fixture
def cohort(kube):
    """This namespace's jobs may run for so long."""
    kube.submit(
        {
            "apiVersion": "gpupack.dev/v1beta1",
            "kind": "GPUCohort",
            "metadata": {"name": kube.namespace},
            "spec": {"maxRunSeconds": LIMIT_SECONDS},
        },
        {
            "apiVersion": "gpupack.dev/v1beta1",
            "kind": "GPUQuota",
            "metadata": {"name": "default"},
            "spec": {"cohort": kube.namespace, "gpus": []},
        },
    )
    yield kube.namespace
    kube.delete("gpucohort", kube.namespace)


def allow(kube, cohort, seconds):
    body = json.dumps({"spec": {"maxRunSeconds": seconds}})
    kube.insist("patch", "gpucohort", cohort, "--type=merge", "--patch", body)


def test_a_job_without_a_deadline_ends_at_the_limit_with_a_reason_that_names_the_cohort(
    kube, cohort, judged
):
    kube.submit(judged.job("endless", seconds=600))
    status = kube.wait_phase("endless", "Running")["status"]
    assert status["runLimit"] == {"seconds": LIMIT_SECONDS, "cohort": cohort}
    ended = kube.wait_phase("endless", "Failed", seconds=90)["status"]
    assert ended["reason"] == "MaxRunTimeExceeded"
    assert f"maxRunSeconds of GPUCohort {cohort}" in ended["message"]
    assert [each["outcome"] for each in ended["attempts"]] == ["DeadlineExceeded"]


def test_a_changed_limit_applies_to_a_job_that_runs(kube, cohort, judged):
    allow(kube, cohort, 600)
    kube.submit(judged.job("long", seconds=600))
    kube.wait_phase("long", "Running")
    allow(kube, cohort, 5)
    ended = kube.wait_phase("long", "Failed", seconds=90)["status"]
    assert (ended["reason"], ended["runLimit"]["seconds"]) == ("MaxRunTimeExceeded", 5)


def test_a_standalone_pod_is_evicted_at_the_limit(kube, cohort, judged):
    kube.submit(judged.pod("notebook"))
    kube.wait_pod("notebook", "Running")
    wait_for(
        lambda: "MaxRunTimeExceeded" in kube.events("notebook") or None,
        seconds=90,
        what="it is evicted because it has run for too long",
    )
