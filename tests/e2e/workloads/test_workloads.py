# SPDX-License-Identifier: Apache-2.0
"""Every unchanged workload manifest of examples/ on the cluster."""

import pytest
from workload_jobs import WORKLOADS, run_example


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workloads_example_succeeds_with_verified_results(kube, name):
    assert run_example(kube, name) == []
