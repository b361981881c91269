# SPDX-License-Identifier: Apache-2.0
"""Elastic gangs take free GPUs, and release them for pending jobs."""

import time

import pytest
from elastic_gangs import GANG, OTHER, gang, other, require_one_attempt, wait_width
from harness import wait_for


@pytest.mark.alone
@pytest.mark.slow
def test_a_gang_grows_and_shrinks_without_another_attempt(kube, judged, refusals, tell):
    kube.submit(other(judged))
    kube.wait_phase(OTHER, "Running")
    kube.submit(gang(judged))
    began = wait_width(kube, 2)
    assert began["status"]["width"]["column"] == "2 of 2-4"
    assert began["status"]["gpus"] == "8"

    kube.delete("gpujob", OTHER)
    freed = time.monotonic()
    assert wait_width(kube, 4)["status"]["width"]["reason"] == "ScaledUp"
    grown = time.monotonic() - freed

    kube.submit(other(judged))
    asked = time.monotonic()
    kube.wait_phase(OTHER, "Running")
    served = time.monotonic() - asked
    shrunk = wait_width(kube, 2)["status"]["width"]
    assert shrunk["reason"] == "ElasticScaleDown"
    assert f"stopped for GPUJob {OTHER}, which needs the GPUs of an" in shrunk["message"]

    kube.delete("gpujob", OTHER)
    wait_width(kube, 4)
    require_one_attempt(kube)
    assert {"ScaledUp", "ScaledDown"} <= set(kube.events(GANG))
    assert "Preempting" in kube.events(OTHER)
    assert refusals() == []
    tell(f"grown {grown:.1f} s after its GPUs were free; their owner ran in {served:.1f} s")


def test_a_gang_is_no_wider_than_its_quota_and_ends_as_a_whole(kube, judged):
    kube.submit(
        {
            "apiVersion": "gpupack.dev/v1beta1",
            "kind": "GPUQuota",
            "metadata": {"name": "default"},
            "spec": {"gpus": [{"model": "*", "nominal": 3, "borrowingLimit": 0}]},
        }
    )
    kube.submit(judged.job("small", workers=4, minWorkers=2, seconds=15))
    job = kube.wait_phase("small", "Running")
    assert job["status"]["width"]["workers"] <= 3
    job = kube.wait_phase("small", "Succeeded")
    assert len(job["status"]["attempts"]) == 1

    def pods():
        living = [pod for pod in kube.pods("small") if pod["status"]["phase"] == "Running"]
        return not living

    wait_for(pods, seconds=60, what="no worker outlives the gang")


def test_the_elasticity_of_a_gang_is_immutable(kube, judged):
    kube.submit(judged.job("fixed", workers=3, minWorkers=2, seconds=60))
    for least in (1, 3):
        changed = kube.apply(judged.job("fixed", workers=3, minWorkers=least, seconds=60))
        assert "minWorkers cannot change after the job is created" in changed.stderr
