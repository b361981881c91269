# SPDX-License-Identifier: Apache-2.0
"""Pods, Jobs and Deployments."""

import pytest

ONE = {"nvidia.com/gpu": 1}


def test_the_documented_pods_of_hami_are_converted(converted):
    found = converted("hami.yaml", gpu_memory_mib=24 << 10)
    specs = {each["metadata"]["name"]: each["spec"] for each in found.objects}
    assert specs["sharing-card"]["share"]["memory"] == "9830Mi"
    assert specs["default-use"]["share"]["percent"] == 30
    assert specs["card-type"]["gpuModels"] == ["A100", "V100"]
    assert specs["exclusive-card"]["gpus"] == 2
    assert found.dropped == []


def test_a_deployment_stays_one_with_a_share_of_gpupack(converted):
    found = converted("hami-deployment.yaml")
    (deployment,) = found.objects
    template = deployment["spec"]["template"]
    (container,) = template["spec"]["containers"]
    assert template["spec"]["schedulerName"] == "gpupack"
    assert container["resources"]["limits"] == {
        "gpupack.dev/gpu-share": 1,
        "gpupack.dev/gpu-percent": 10,
        "gpupack.dev/gpu-memory": "3000Mi",
    }
    assert template["metadata"]["annotations"] == {"gpupack.dev/isolation": "limited"}
    assert found.dropped == []


def test_a_job_becomes_a_gang_with_its_failure_policy(converted):
    found = converted("job.yaml")
    assert found.job["metadata"] == {"name": "sample-job", "namespace": "team"}
    assert (found.spec["workers"], found.spec["gpus"]) == (3, 8)
    assert found.spec["maxRestarts"] == 4
    assert found.spec["failurePolicy"] == [{"exitCodes": [42], "action": "Fail"}]
    assert found.spec["gpuModels"] == ["NVIDIA-H100-80GB-HBM3"]
    assert "suspend" not in found.spec
    assert found.worker["image"] == "registry.example/train:1"
    assert found.dropped == []


def test_a_job_with_more_completions_than_pods_stays_a_job(converted, pod):
    template = {"spec": pod(ONE)["spec"]}
    spec = {"parallelism": 2, "completions": 9, "suspend": True, "template": template}
    labels = {"kueue.x-k8s.io/queue-name": "q", "app": "a"}
    found = converted(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "a", "labels": labels, "uid": "1"},
            "spec": spec,
            "status": {"active": 1},
        }
    )
    (job,) = found.objects
    assert (job["kind"], job["metadata"]) == ("Job", {"name": "a", "labels": {"app": "a"}})
    assert "suspend" not in job["spec"]
    assert "status" not in job
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == {"limits": {"gpupack.dev/gpu": 1}}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("nodeName", "n1"),
        ("hostname", "h"),
        ("subdomain", "s"),
        ("schedulingGates", [{"name": "g"}]),
        ("resourceClaims", [{"name": "c"}]),
        ("terminationGracePeriodSeconds", 7200),
    ],
)
def test_a_field_that_a_gpujob_refuses_is_reported(converted, pod, field, value):
    found = converted(pod(ONE, **{field: value}))
    assert found.dropped == [f"spec.{field}"]
    assert found.spec["template"]["spec"].get(field) in (None, 3600)


def test_a_restart_policy_and_a_deadline_are_those_of_the_job(converted, pod):
    spec = converted(pod(ONE, restartPolicy="OnFailure", activeDeadlineSeconds=60)).spec
    assert (spec["maxRestarts"], spec["activeDeadlineSeconds"]) == (100, 60)
    assert spec["template"]["spec"].keys() == {"containers"}


def test_variables_of_devices_are_removed(converted, pod):
    env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}, {"name": "A", "value": "1"}]
    made = pod(ONE)
    made["spec"]["containers"][0]["env"] = env
    found = converted(made)
    assert found.worker["env"] == [{"name": "A", "value": "1"}]


@pytest.mark.parametrize(
    "annotation",
    [
        "nvidia.com/nouse-gputype",
        "nvidia.com/use-gpuuuid",
        "nvidia.com/numa-bind",
        "nvidia.com/vgpu-mode",
        "hami.io/node-scheduler-policy",
        "hami.io/gpu-scheduler-policy",
        "gpupack.dev/devices",
        "kueue.x-k8s.io/podset-required-topology",
    ],
)
def test_an_annotation_without_equivalent_is_reported(converted, pod, annotation):
    found = converted(pod(ONE, annotations={annotation: "x"}))
    assert found.dropped == [f"metadata.annotations.{annotation}"]


def test_two_containers_with_gpus_are_not_converted(converted, pod):
    made = pod(ONE)
    made["spec"]["containers"] *= 2
    assert converted(made).objects == []


def test_a_name_that_a_gpujob_cannot_have_is_changed_and_noted(converted, pod):
    long = "a." + "b" * 80
    found = converted(pod(ONE, name=long))
    name = found.job["metadata"]["name"]
    assert name.startswith("a-bbb")
    assert len(name) <= 52
    assert "metadata.name" in found.notes
    assert converted(pod(ONE, name=f"{long}c")).job["metadata"]["name"] != name


def test_nvidias_runtime_class_is_removed_where_gpupack_gives_the_gpus(converted, pod):
    made = pod(ONE, runtimeClassName="nvidia")
    assert "runtimeClassName" not in converted(made).spec["template"]["spec"]
    kept = converted(made, keep_resource=True).spec["template"]["spec"]
    assert kept["runtimeClassName"] == "nvidia"
