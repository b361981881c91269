# SPDX-License-Identifier: Apache-2.0
"""The examples with TensorFlow, whose image is another, and its tests inside that image."""

import copy
import json

import pytest
from harness import placed
from workload_jobs import MANIFESTS, RUN_SECONDS, logs

IMAGE_SECONDS = 900
"""Each of a dozen trainings imports TensorFlow, two at a time on two cores."""


def metrics(kube, name):
    """Return each worker's metrics of the training, once it has succeeded."""
    job = kube.wait_phase(name, "Succeeded", "Failed", seconds=RUN_SECONDS)
    assert job["status"]["phase"] == "Succeeded", [json.dumps(job["status"]), *logs(kube, name)]
    results = job["status"]["results"]
    assert [(each["workload"], each["verified"]) for each in results] == [
        ("tensorflow", True)
    ] * job["spec"].get("workers", 1)
    return job, [each["metrics"] for each in results]


def test_two_gpus_of_a_worker_are_two_replicas_of_one_training(kube):
    kube.submit(MANIFESTS["tensorflow"])
    _, (found,) = metrics(kube, "tensorflow")
    assert (found["strategy"], found["workers"], found["replicas"]) == ("MirroredStrategy", 1, 2)
    assert (found["different_weights"], found["memory_limit_mib"]) == (0, 0)
    assert found["memory_growth"] is True
    assert len(found["devices"].split(",")) == 2


def test_two_workers_on_two_nodes_find_each_other_and_are_one_training(kube):
    kube.submit(MANIFESTS["tensorflow-gang"])
    job, found = metrics(kube, "tensorflow-gang")
    assert len({worker.node for worker in placed(job)}) == 2
    assert {each["strategy"] for each in found} == {"MultiWorkerMirroredStrategy"}
    assert [(each["workers"], each["replicas"], each["different_weights"]) for each in found] == [
        (2, 2, 0)
    ] * 2
    assert sorted(each["worker"] for each in found) == [0, 1]
    assert len({(each["loss"], each["accuracy"]) for each in found}) == 1


def test_on_shares_tensorflow_keeps_to_a_part_of_the_shares_memory(kube):
    manifest = copy.deepcopy(MANIFESTS["tensorflow"])
    manifest["metadata"]["name"] = "share"
    del manifest["spec"]["gpus"]
    manifest["spec"]["share"] = {"percent": 25, "memory": "10Gi"}
    (worker,) = manifest["spec"]["template"]["spec"]["containers"]
    worker["args"] += ["--memory-fraction=0.5", "--epochs=1"]
    kube.submit(manifest)
    _, (found,) = metrics(kube, "share")
    assert found["memory_limit_mib"] == 5120


@pytest.mark.slow
@pytest.mark.timeout(IMAGE_SECONDS + 60)
def test_the_workload_is_right_in_the_image_that_runs_it(kube):
    done = kube.kubectl(
        "run", "tensorflow", "--image=docker.io/gpupack/tensorflow-test:dev", "--restart=Never",
        "--image-pull-policy=Never",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    terminated = "{.status.containerStatuses[0].state.terminated"
    kube.kubectl(
        "wait", "pod/tensorflow", f"--for=jsonpath={terminated}}}", f"--timeout={IMAGE_SECONDS}s"
    )
    report = kube.kubectl("logs", "tensorflow").stdout
    code = kube.kubectl("get", "pod", "tensorflow", "-o", f"jsonpath={terminated}.exitCode}}")
    assert code.stdout == "0", report
    assert " passed" in report
