# SPDX-License-Identifier: Apache-2.0
"""A GPUJob that exists says otherwise what it runs: it starts again on the same GPUs."""

import json

import pytest
from harness import placed, wait_for

OTHER = {"workload": {"name": "vector-add"}}


def patch(kube, name, **spec):
    body = json.dumps({"spec": spec})
    return kube.kubectl("patch", "gpujob", name, "--type=merge", "--patch", body).stderr


def uuids(job):
    return [gpu for entry in job["status"]["placement"] for gpu in entry["gpus"]]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (OTHER, "workload can change only with a higher revision"),
        (
            {"distributed": {"backend": "gloo"}},
            "distributed can change only with a higher revision",
        ),
        ({"revision": 1}, "revision cannot be lowered"),
        ({"revision": 3, "gpus": 2}, "gpus cannot change after the job is created"),
        ({"revision": -1}, "should be greater than or equal to 0"),
    ],
)
def test_a_change_that_no_revision_allows_is_refused(kube, judged, spec, message):
    kube.submit(judged.job("train", gpus=1, seconds=1, suspend=True, revision=2))
    before = kube.gpujob("train")["spec"]
    assert message in patch(kube, "train", **spec)
    assert kube.gpujob("train")["spec"] == before


@pytest.mark.slow
@pytest.mark.alone
def test_a_job_keeps_its_gpus_by_a_higher_revision_though_others_wait_for_them(kube, judged):
    """It has all GPUs of the cluster, so pending jobs would get any that it released."""
    kube.submit(judged.job("train", workers=2, gpus=8, seconds=600))
    first = kube.wait_phase("train", "Running", seconds=60)
    kube.submit(judged.job("waits", seconds=1))
    kube.wait_reason("waits", "TooFewFreeGpus")
    template = judged.job("train", workers=2, gpus=8, seconds=3)["spec"]["template"]
    assert patch(kube, "train", revision=1, template=template) == ""
    second = wait_for(lambda: begun_again(kube), seconds=60, what="it runs by that revision")
    assert uuids(second) == uuids(first)
    assert placed(second) == placed(first)
    job = kube.wait_phase("train", "Succeeded", "Failed", seconds=60)
    assert [each["outcome"] for each in job["status"]["attempts"]] == ["Revised", "Succeeded"]
    assert (job["status"]["restarts"], job["status"]["revision"]) == (0, 1)
    waited = kube.wait_phase("waits", "Succeeded", "Failed", seconds=60)
    assert [each["number"] for each in waited["status"]["attempts"]] == [1]


def begun_again(kube):
    job = kube.gpujob("train")
    return job if job["status"]["attempt"] == 2 and job["status"].get("placement") else None
