# SPDX-License-Identifier: Apache-2.0


def test_a_trainjob_has_the_image_of_its_runtime_and_its_own_patches(converted):
    found = converted("trainjob.yaml", "trainjob-runtime.yaml")
    pod = found.spec["template"]["spec"]
    assert (found.spec["workers"], found.spec["gpus"]) == (2, 4)
    assert found.worker["image"] == "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime"
    assert found.worker["command"] == ["torchrun", "train.py"]
    assert found.worker["resources"] == {"requests": {"cpu": "2", "memory": "4Gi"}}
    assert pod["nodeSelector"] == {"node-type": "training"}
    assert found.job["metadata"]["labels"] == {"team": "ml-platform"}
    assert found.dropped == []


def test_a_service_account_keeps_its_token(converted):
    found = converted("trainjob.yaml", "trainjob-runtime.yaml")
    assert found.spec["template"]["spec"]["automountServiceAccountToken"] is True


def test_a_runtime_without_its_manifest_is_asked_for(converted):
    found = converted("trainjob.yaml")
    assert found.objects == []
    assert found.dropped == ["spec.runtimeRef.name"]
    assert "kubectl get clustertrainingruntime" in found.results[0].report.findings[-1].advice


def test_a_command_of_mpirun_runs_its_program_in_each_rank(converted):
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "a"},
        "spec": {
            "runtimeRef": {"name": "deepspeed-distributed"},
            "trainer": {
                "image": "i:1",
                "numNodes": 2,
                "command": ["mpirun", "-np", "4", "python", "train.py"],
                "resourcesPerNode": {"limits": {"nvidia.com/gpu": 2}},
            },
        },
    }
    found = converted(job)
    assert found.spec["distributed"] == {"backend": "mpi"}
    assert found.worker["command"] == ["python", "train.py"]
    assert found.dropped == []


def test_a_job_that_kueue_holds_is_not_suspended(converted):
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "a", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
        "spec": {
            "runtimeRef": {"name": "t"},
            "suspend": True,
            "initializer": {"dataset": {"storageUri": "hf://a/b"}},
            "trainer": {"image": "i", "resourcesPerNode": {"limits": {"nvidia.com/gpu": 1}}},
        },
    }
    found = converted(job)
    assert "suspend" not in found.spec
    assert found.dropped == ["spec.initializer"]
