# SPDX-License-Identifier: Apache-2.0
"""A request for GPUs by the name of a plugin that no node has gets the lines to change.

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
def test_a_request_for_gpus_of_a_missing_plugin_names_the_lines_to_change(tenant, workload):
    answer = tenant.try_to_create(workload({"containers": [NVIDIA]}))
    assert answer.startswith(WITHHELD)
    assert "no node offers nvidia.com/gpu, because gpupack hands out the GPUs" in answer
    assert "schedulerName: gpupack, and gpupack.dev/gpu: 2 in place of nvidia.com/gpu: 2" in answer


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
def test_other_requests_get_no_warning(tenant, workload, spec):
    assert tenant.try_to_create(workload(spec)) == ""
