# SPDX-License-Identifier: Apache-2.0
"""The workloads' manifests of examples/ agree with the command line."""

import pathlib

import pytest
import yaml

from gpupack_workloads import commands

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize("name", commands.names())
def test_every_workload_has_an_example_whose_arguments_it_takes(name):
    manifest = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    workload = manifest["spec"]["workload"]
    assert (manifest["metadata"]["name"], workload["name"]) == (name, name)
    commands.load(name).make_context(name, list(workload.get("args", [])))
