# SPDX-License-Identifier: Apache-2.0
"""Who requests GPUs by the name of a plugin that no node has is told which lines to change.

Tried as an ordinary tenant, without effect (dry run).
"""

import pytest
from admission import asking
from test_admission_workloads import KINDS, of_kind


def idle_pod(spec):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "idle"}, "spec": spec}


WITHHELD = "Warning: Validation failed for ValidatingAdmissionPolicy 'gpupack-withheld'"
NVIDIA = asking(limits={"nvidia.com/gpu": "2"})


@pytest.mark.parametrize("workload", [*KINDS.values(), idle_pod], ids=[*KINDS, "Pod"])
def test_who_requests_gpus_of_a_plugin_that_no_node_has_is_told_which_lines_to_change(
    tenant, workload
):
    told = tenant.try_to_create(workload({"containers": [NVIDIA]}))
    assert told.startswith(WITHHELD)
    assert "no node offers nvidia.com/gpu, since gpupack hands out the GPUs" in told
    assert "schedulerName: gpupack, and gpupack.dev/gpu: 2 in place of nvidia.com/gpu: 2" in told


@pytest.mark.parametrize("workload", [of_kind("Deployment"), idle_pod], ids=["Deployment", "Pod"])
def test_a_pod_of_our_scheduler_is_warned_of_the_line_to_change(tenant, workload):
    said = tenant.try_to_create(workload({"containers": [NVIDIA], "schedulerName": "gpupack"}))
    assert said.startswith(WITHHELD)
    assert "write gpupack.dev/gpu: 2 in place of nvidia.com/gpu: 2" in said


@pytest.mark.parametrize("workload", [of_kind("Deployment"), idle_pod], ids=["Deployment", "Pod"])
@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [NVIDIA], "schedulerName": "example-scheduler"},
        {"containers": [asking(limits={"example.org/fpga": "1"})]},
    ],
    ids=["of another scheduler", "of another plugin"],
)
def test_who_requests_something_else_is_told_nothing(tenant, workload, spec):
    assert tenant.try_to_create(workload(spec)) == ""
