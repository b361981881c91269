# SPDX-License-Identifier: Apache-2.0
import pytest


def pytorchjob(spec=None, *, master=None, worker=None, **pod):
    container = {"name": "pytorch", "image": "i:1", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    template = {"spec": {"containers": [container | pod]}}
    replicas = {}
    if master is not None:
        replicas["Master"] = {"template": template} | master
    if worker is not None:
        replicas["Worker"] = {"template": template} | worker
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "a"},
        "spec": {"pytorchReplicaSpecs": replicas} | (spec or {}),
    }


def test_master_and_workers_are_the_workers_of_one_gang(converted):
    found = converted("pytorchjob.yaml")
    assert (found.spec["workers"], found.spec["gpus"]) == (3, 1)
    assert found.worker == {
        "name": "pytorch",
        "image": "kubeflow/pytorch-dist-mnist:latest",
        "args": ["--backend", "nccl"],
    }
    assert found.dropped == []
    assert "labels" not in found.job["metadata"]
    assert "metadata.labels.kai.scheduler/queue" in found.notes


def test_elastic_replicas_are_extra_workers(converted):
    found = converted("pytorchjob-elastic.yaml")
    assert (found.spec["workers"], found.spec["minWorkers"]) == (3, 1)
    assert found.dropped == ["spec.elasticPolicy.metrics"]


def test_the_run_policy_becomes_the_life_of_the_job(converted):
    policy = {
        "backoffLimit": 3,
        "activeDeadlineSeconds": 60,
        "ttlSecondsAfterFinished": 0,
        "suspend": True,
        "schedulingPolicy": {"priorityClass": "urgent", "queue": "q"},
    }
    spec = converted(pytorchjob({"runPolicy": policy}, master={})).spec
    assert spec["maxRestarts"] == 3
    assert spec["activeDeadlineSeconds"] == 60
    assert spec["ttlSecondsAfterFinished"] == 0
    assert spec["suspend"] is True
    assert spec["priorityClassName"] == "urgent"


def test_exit_codes_below_128_are_permanent_for_restart_policy_exit_code(converted):
    rules = converted(pytorchjob(master={"restartPolicy": "ExitCode"})).spec["failurePolicy"]
    codes = [code for rule in rules for code in rule["exitCodes"]]
    assert codes == list(range(1, 128))
    assert {rule["action"] for rule in rules} == {"Fail"}


@pytest.mark.parametrize(
    ("given", "gpus", "command", "processes"),
    [
        (None, 8, ["python", "train.py"], 1),
        (None, 8, ["torchrun", "train.py"], None),
        ("auto", 8, ["python", "train.py"], None),
        ("2", 8, ["torchrun", "train.py"], 2),
        ("8", 8, ["torchrun", "train.py"], None),
        (None, 1, ["python", "train.py"], None),
    ],
)
def test_the_number_of_processes_is_that_of_the_source(converted, given, gpus, command, processes):
    spec = {"nprocPerNode": given} if given else {}
    resources = {"limits": {"nvidia.com/gpu": gpus}}
    job = pytorchjob(spec, master={}, worker={}, command=command, resources=resources)
    assert converted(job).spec.get("distributed", {}).get("processesPerWorker") == processes


def test_a_different_master_is_reported_field_by_field(converted):
    job = pytorchjob(master={}, worker={})
    other = {"name": "pytorch", "image": "i:1", "command": ["serve"]} | {
        "resources": {"limits": {"nvidia.com/gpu": 1}}
    }
    job["spec"]["pytorchReplicaSpecs"]["Master"]["template"] = {"spec": {"containers": [other]}}
    assert converted(job).dropped == ["spec.pytorchReplicaSpecs.Master.template.command"]


def test_a_master_with_other_gpus_is_not_converted(converted):
    job = pytorchjob(master={}, worker={})
    container = {"name": "m", "image": "i:1", "resources": {"limits": {"nvidia.com/gpu": 2}}}
    job["spec"]["pytorchReplicaSpecs"]["Master"]["template"] = {"spec": {"containers": [container]}}
    found = converted(job)
    assert found.objects == []
    assert found.dropped == ["spec.pytorchReplicaSpecs.Master.template.spec.containers"]


def test_fields_that_the_conversion_does_not_know_are_reported(converted):
    job = pytorchjob({"futureField": 1, "runPolicy": {"newPolicy": {"a": 1}}}, master={})
    assert converted(job).dropped == ["spec.futureField", "spec.runPolicy.newPolicy"]


def test_minimum_members_below_all_are_reported(converted):
    policy = {"schedulingPolicy": {"minAvailable": 1}}
    found = converted(pytorchjob({"runPolicy": policy}, master={}, worker={"replicas": 3}))
    assert found.dropped == ["spec.runPolicy.schedulingPolicy.minAvailable"]
