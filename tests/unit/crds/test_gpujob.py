# SPDX-License-Identifier: Apache-2.0
"""Names in the API's types agree with those in the code that uses them."""

from typing import get_args

from gpupack_crds.gpujob import PolicyName, WorkloadName
from gpupack_placement import POLICIES
from gpupack_workloads import commands


def test_the_api_names_every_policy_that_there_is():
    assert set(get_args(PolicyName)) == set(POLICIES)


def test_the_api_names_every_workload_that_there_is():
    assert set(get_args(WorkloadName)) == set(commands.names())
