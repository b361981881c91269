# SPDX-License-Identifier: Apache-2.0
import pytest


def vcjob(*tasks, **spec):
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "a"},
        "spec": {"tasks": list(tasks)} | spec,
    }


def task(name="t", replicas=1, limits=None, **more):
    container = {"name": "c", "image": "i:1", "command": ["run"]}
    container["resources"] = {"limits": limits or {"nvidia.com/gpu": 1}}
    pod = {"restartPolicy": "Never", "containers": [container]}
    return {"name": name, "replicas": replicas, "template": {"spec": pod}} | more


def test_master_and_workers_of_the_pytorch_plugin_are_one_gang(converted):
    found = converted("vcjob.yaml")
    assert (found.spec["workers"], found.spec["gpus"], found.spec["maxRestarts"]) == (3, 1, 5)
    assert found.dropped == []
    assert "spec.queue" in found.notes


def test_a_master_that_starts_mpirun_in_a_script_is_not_converted(converted):
    found = converted("vcjob-mpi.yaml")
    assert found.objects == []
    assert found.dropped == ["spec.tasks[0].template.spec.containers[0].command"]


def test_a_master_that_is_mpirun_becomes_ranks(converted):
    master = task("mpimaster")
    master["template"]["spec"]["containers"][0]["command"] = ["mpiexec", "-np", "2", "hello"]
    found = converted(vcjob(master, task("mpiworker", 2), plugins={"ssh": []}))
    assert found.spec["workers"] == 2
    assert found.spec["distributed"] == {"backend": "mpi"}
    assert found.worker["command"] == ["hello"]


def test_a_minimum_below_all_replicas_makes_the_job_elastic(converted):
    spec = converted(vcjob(task(replicas=6), minAvailable=3)).spec
    assert (spec["workers"], spec["minWorkers"]) == (6, 3)


def test_tasks_with_different_templates_are_not_converted(converted):
    found = converted(vcjob(task("ps"), task("worker")))
    assert (found.objects, found.dropped) == ([], ["spec.tasks"])


def test_exit_codes_of_policies_become_failure_rules(converted):
    policies = [
        {"exitCode": 3, "action": "RestartJob"},
        {"exitCode": 4, "action": "AbortJob"},
        {"event": "PodFailed", "action": "AbortJob"},
        {"event": "PodPending", "action": "AbortJob", "timeout": "1h"},
    ]
    found = converted(vcjob(task(), policies=policies))
    assert found.spec["failurePolicy"] == [
        {"exitCodes": [3], "action": "Retry"},
        {"exitCodes": [4], "action": "Fail"},
    ]
    assert "maxRestarts" not in found.spec
    assert found.dropped == ["spec.policies"]


def test_volumes_are_mounted_and_claims_are_reported(converted):
    volumes = [
        {"mountPath": "/in", "volumeClaimName": "in"},
        {"mountPath": "/out", "volumeClaim": {}},
    ]
    found = converted(vcjob(task(), volumes=volumes))
    pod = found.spec["template"]["spec"]
    assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "in"}
    assert [each["mountPath"] for each in found.worker["volumeMounts"]] == ["/in", "/out"]
    assert found.dropped == ["spec.volumes[1].volumeClaim"]


@pytest.mark.parametrize(
    ("limits", "size"),
    [
        ({"volcano.sh/gpu-number": 2}, {"gpus": 2}),
        (
            {
                "volcano.sh/vgpu-number": 1,
                "volcano.sh/vgpu-memory": 3000,
                "volcano.sh/vgpu-cores": 20,
            },
            {"share": {"percent": 20, "memory": "3000Mi", "isolation": "limited"}},
        ),
    ],
)
def test_gpus_of_volcanos_plugins_are_converted(converted, limits, size):
    spec = converted(vcjob(task(limits=limits))).spec
    assert {name: spec[name] for name in size} == size


def test_topology_and_success_rules_are_reported(converted):
    found = converted(
        vcjob(task(), networkTopology={"mode": "hard"}, minSuccess=1, plugins={"svc": []})
    )
    assert found.dropped == ["spec.minSuccess", "spec.networkTopology", "spec.plugins.svc"]
