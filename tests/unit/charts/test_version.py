# SPDX-License-Identifier: Apache-2.0
"""The chart and all packages have one version."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from processes import environment

from gpupack_kubeclient import __version__

ROOT = Path(__file__).parents[3]


def test_the_chart_and_all_packages_have_the_same_version():
    chart = yaml.safe_load((ROOT / "charts/gpupack/Chart.yaml").read_text())
    found = {"chart": chart["version"], "appVersion": chart["appVersion"], "images": __version__}
    for path in (*ROOT.glob("*/pyproject.toml"), *ROOT.glob("*/*/pyproject.toml")):
        found[str(path.relative_to(ROOT))] = tomllib.loads(path.read_text())["project"]["version"]
    assert len(found) > 10
    assert set(found.values()) == {chart["version"]}, found


NEWER = {"GPUPACK_CHART_VERSION": "9.9.9"}


@pytest.mark.parametrize(
    ("module", "variables"),
    [
        ("gpupack_extender", {"GPUPACK_QUEUE": '{"ofANewerChart": 1}'}),
        ("gpupack_apiserver.accounts", {"GPUPACK_COST": '{"ofANewerChart": 1}'}),
        ("gpupack_apiserver", {"GPUPACK_LOG_LEVEL": "OFANEWERCHART"}),
        ("gpupack_operator", {"GPUPACK_LOG_LEVEL": "OFANEWERCHART"}),
        ("gpupack_operator.certificates", {"GPUPACK_LOG_LEVEL": "OFANEWERCHART"}),
        ("gpupack_agent run", {"GPUPACK_LOG_LEVEL": "OFANEWERCHART"}),
        ("gpupack_agent run", {"NODE_NAME": ""}),
        ("gpupack_agent mps", {"GPUPACK_LOG_LEVEL": "OFANEWERCHART"}),
    ],
)
def test_a_component_with_the_configuration_of_a_newer_chart_names_both_versions(module, variables):
    command = [sys.executable, "-m", *module.split()]
    given = environment(**NEWER, **variables)
    done = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "from chart 9.9.9, and this image is version" in done.stderr
    assert "Traceback" not in done.stderr


def test_every_component_gets_the_version_of_the_chart(render):
    everything = ("api.enabled=true", "cost.enabled=true")
    version = yaml.safe_load((ROOT / "charts/gpupack/Chart.yaml").read_text())["version"]
    ours = [
        container
        for (kind, _), item in render(*everything).objects.items()
        if kind in {"Deployment", "DaemonSet"}
        for container in item["spec"]["template"]["spec"]["containers"]
        if "kube-scheduler" not in container["image"]
    ]
    assert len(ours) == 7
    for each in ours:
        assert {"name": "GPUPACK_CHART_VERSION", "value": version} in each["env"], each["name"]
