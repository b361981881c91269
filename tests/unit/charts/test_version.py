# SPDX-License-Identifier: Apache-2.0
"""The chart and all packages have one version."""

import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[3]


def test_the_chart_and_all_packages_have_the_same_version():
    chart = yaml.safe_load((ROOT / "charts/gpupack/Chart.yaml").read_text())
    found = {"chart": chart["version"], "appVersion": chart["appVersion"]}
    for path in (*ROOT.glob("*/pyproject.toml"), *ROOT.glob("*/*/pyproject.toml")):
        found[str(path.relative_to(ROOT))] = tomllib.loads(path.read_text())["project"]["version"]
    assert len(found) > 10
    assert set(found.values()) == {chart["version"]}, found
