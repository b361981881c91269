# SPDX-License-Identifier: Apache-2.0
"""What happens to any object: it is converted, passed on or reported, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpupack_cli.convert.kinds import KINDS, TEMPLATES, convert
from gpupack_cli.convert.settings import Settings
from gpupack_cli.convert.source import Manifest, Script

NAMES = (
    *("metadata", "name", "labels", "annotations", "spec", "template", "containers", "resources"),
    *("limits", "requests", "env", "image", "command", "args", "replicas", "tasks", "plugins"),
    *("pytorchReplicaSpecs", "mpiReplicaSpecs", "Master", "Worker", "Launcher", "trainer"),
    *("runtimeRef", "policies", "volumes", "nodeSelector", "gpu-fraction"),
    *("nvidia.com/gpu", "nvidia.com/gpumem"),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 70) | st.sampled_from(["", "a", "1", "x=1"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5)
    ),
    max_leaves=25,
)
PODS = st.fixed_dictionaries(
    {"containers": st.lists(VALUES, max_size=2)},
    optional=dict.fromkeys(("initContainers", "nodeSelector", "serviceAccountName"), VALUES),
)


@given(st.sampled_from(sorted({*KINDS, *TEMPLATES})), VALUES, VALUES | PODS)
def test_any_content_of_a_known_kind_is_converted_or_reported(key, metadata, spec):
    version, kind = key
    template = {"spec": spec}
    inner = spec if kind == "Pod" else {"template": template, "jobTemplate": {"spec": template}}
    json = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": inner}
    (result,) = convert([Manifest(json)], Settings())
    assert result.objects or any(each.level == "dropped" for each in result.report.findings)


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_script_is_converted_or_reported(options, body):
    text = f"#!/bin/bash\n#SBATCH --gres=gpu:1 {options}\n{body}\n"
    (result,) = convert([Script("s", text)], Settings(image="i"))
    assert result.objects or any(each.level == "dropped" for each in result.report.findings)


@pytest.mark.parametrize(
    ("version", "kind"),
    [("v1", "ConfigMap"), ("networking.k8s.io/v1", "Ingress"), ("gpupack.dev/v1beta1", "GPUJob")],
)
def test_objects_without_pods_are_passed_on(version, kind):
    json = {"apiVersion": version, "kind": kind, "metadata": {"name": "a"}}
    (result,) = convert([Manifest(json)], Settings())
    assert result.objects == (json,)
    assert result.report.findings == []


@pytest.mark.parametrize(
    ("version", "kind", "says"),
    [
        ("kueue.x-k8s.io/v1beta1", "ClusterQueue", "write GPUQuotas"),
        ("scheduling.volcano.sh/v1beta1", "Queue", "write GPUQuotas"),
        ("scheduling.run.ai/v2", "Queue", "write GPUQuotas"),
        ("ray.io/v1", "RayCluster", "known are"),
        ("kubeflow.org/v1", "TFJob", "known are"),
    ],
)
def test_other_objects_are_reported(version, kind, says):
    json = {"apiVersion": version, "kind": kind, "metadata": {"name": "a"}}
    (result,) = convert([Manifest(json)], Settings())
    assert result.objects == ()
    (finding,) = result.report.findings
    assert says in finding.advice
