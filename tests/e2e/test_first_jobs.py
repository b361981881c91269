# SPDX-License-Identifier: Apache-2.0
"""The reason to be: from `kubectl apply` to the result in the status."""

import json

import pytest
import yaml
from harness import ROOT, annotated_devices, condition, placed
from manifests import JUDGE_IMAGE
from workload_jobs import RUN_SECONDS


def example(name):
    return yaml.safe_load((ROOT / "examples" / f"{name}.yaml").read_text())


def test_a_matmul_measures_tflops_and_reports_them_in_the_status(kube):
    kube.submit(example("matmul"))
    job = kube.wait_phase("matmul", "Succeeded", "Failed", seconds=RUN_SECONDS)
    assert "TFLOP/s" in job["status"]["headline"]
    (result,) = job["status"]["results"]
    assert result["verified"] is True
    assert result["simulated"] is True
    assert result["metrics"]["tflops"] > 0


def test_an_allreduce_runs_one_worker_on_each_node_and_checks_the_sum(kube, cluster):
    kube.submit(example("allreduce"))
    job = kube.wait_phase("allreduce", "Succeeded", "Failed", seconds=RUN_SECONDS)
    assert sorted(worker.node for worker in placed(job)) == sorted(cluster.nodes())[:2]
    assert [result["verified"] for result in job["status"]["results"]] == [True, True]


def test_a_job_runs_any_image_and_sees_exactly_its_devices(kube, judged, refusals):
    kube.submit(judged.job("own-image", gpus=3))
    job = kube.wait_phase("own-image", "Succeeded", "Failed")
    (pod,) = kube.pods("own-image")
    (result,) = job["status"]["results"]
    (worker,) = placed(job)
    given = [device.uuid for device in worker.devices]
    assert len(set(given)) == 3
    assert annotated_devices(pod) == given == result["metrics"]["devices"].split(",")
    assert pod["spec"]["nodeName"] == worker.node


def test_a_job_that_requests_too_much_waits_and_shows_what_is_missing(kube, judged):
    kube.submit(judged.job("too-big", workers=8, gpus=8))
    job = kube.wait_phase("too-big", "Pending")
    assert condition(job, "Admitted")["status"] == "False"
    assert "64" in job["status"]["message"], json.dumps(job["status"])
    assert kube.pods("too-big") == []


@pytest.mark.alone
def test_a_waiting_job_starts_when_the_gpus_are_free(kube, judged, refusals):
    kube.submit(judged.job("first", workers=2, gpus=8, seconds=60))
    kube.wait_phase("first", "Running")
    kube.submit(judged.job("second", workers=2, gpus=8))
    assert kube.wait_phase("second", "Pending")["status"]["message"]
    kube.delete("gpujob", "first")
    kube.wait_phase("second", "Succeeded")
    assert refusals() == []


def test_a_standalone_pod_that_requests_gpus_is_placed(kube):
    kube.submit(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "notebook"},
            "spec": {
                "schedulerName": "gpupack",
                "restartPolicy": "Never",
                "containers": [
                    {
                        "name": "shell",
                        "image": JUDGE_IMAGE,
                        "command": ["python3", "-c", "import os; print(os.environ)"],
                        "resources": {"limits": {"gpupack.dev/gpu": 2}},
                    }
                ],
            },
        }
    )
    done = kube.kubectl(
        "wait", "pod/notebook", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s"
    )
    assert done.returncode == 0, done.stderr
    (pod,) = kube.pods()
    assert ",".join(annotated_devices(pod)) in kube.kubectl("logs", "notebook").stdout
