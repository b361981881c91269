# SPDX-License-Identifier: Apache-2.0
"""A workload whose pods would be refused gets a warning when it is applied.

Tried as an ordinary tenant, without effect (dry run).
"""

import pytest
from admission import PLAIN, asking, sharing
from manifests import controller

WARNING = "Warning: Validation failed for ValidatingAdmissionPolicy 'gpupack-workloads'"


def job(pod):
    template = {"spec": {"restartPolicy": "Never"} | pod}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "idle"},
        "spec": {"template": template},
    }


def cron_job(pod):
    template = {"spec": job(pod)["spec"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "idle"},
        "spec": {"schedule": "0 0 1 1 *", "jobTemplate": template},
    }


def of_kind(kind, **spec):
    return lambda pod: controller(kind, "idle", pod, **spec)


KINDS = {
    "Deployment": of_kind("Deployment"),
    "StatefulSet": of_kind("StatefulSet", serviceName="idle"),
    "ReplicaSet": of_kind("ReplicaSet"),
    "DaemonSet": of_kind("DaemonSet"),
    "Job": job,
    "CronJob": cron_job,
}


@pytest.mark.parametrize("workload", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("container", [asking(), sharing()], ids=["whole", "share"])
def test_a_workload_with_gpus_and_another_scheduler_gets_a_warning(tenant, workload, container):
    answer = tenant.try_to_create(workload({"containers": [container]}))
    assert answer.startswith(WARNING)
    assert 'set schedulerName to "gpupack" in the spec of the pod template' in answer
    assert '(it is "default-scheduler")' in answer


@pytest.mark.parametrize("workload", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(
    "pod",
    [{"containers": [asking()], "schedulerName": "gpupack"}, {"containers": [PLAIN]}],
    ids=["of our scheduler", "without GPUs"],
)
def test_other_workloads_get_no_warning(tenant, workload, pod):
    assert tenant.try_to_create(workload(pod)) == ""
