# SPDX-License-Identifier: Apache-2.0
"""Whoever applies a workload whose pods would be refused is told so at once.

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
def test_a_workload_that_asks_for_gpus_of_another_scheduler_says_so(tenant, workload, container):
    told = tenant.try_to_create(workload({"containers": [container]}))
    assert told.startswith(WARNING)
    assert 'set schedulerName to "gpupack" in the spec of the pod template' in told
    assert '(it is "default-scheduler")' in told


@pytest.mark.parametrize("workload", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(
    "pod",
    [{"containers": [asking()], "schedulerName": "gpupack"}, {"containers": [PLAIN]}],
    ids=["of our scheduler", "without GPUs"],
)
def test_nothing_is_said_to_any_other_workload(tenant, workload, pod):
    assert tenant.try_to_create(workload(pod)) == ""
