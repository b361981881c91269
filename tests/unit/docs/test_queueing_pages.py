# SPDX-License-Identifier: Apache-2.0
"""The pages of docs/queueing name every reason, chart value and field, with its default."""

import json
import pathlib
import re

import msgspec
import pytest
import yaml

from gpupack_crds.gpucohort import GpuCohortSpec, IdlePods
from gpupack_crds.gpuquota import GpuQuotaSpec
from gpupack_crds.quota import ModelLimit
from gpupack_queue import PreemptionReason, WaitReason

ROOT = pathlib.Path(__file__).parents[3]
PAGES = ROOT / "docs" / "queueing"
CONFIGURATION = (PAGES / "configuration.md").read_text()
OPERATIONS = (PAGES / "operations.md").read_text()
CHART = ROOT / "charts" / "gpupack"
ROW = re.compile(r"^\| `([\w.\[\]]+)` \| `?([^|`]+)`? \| ([^|]+) \|", re.MULTILINE)


def values(of, at=""):
    """Yield path and default of each value, without the parts of `default.gpus`."""
    for name, value in of.items():
        if isinstance(value, dict):
            yield from values(value, f"{at}{name}.")
        else:
            yield f"{at}{name}", value


def section(title):
    return CONFIGURATION.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(title):
    return {path: (default, limit) for path, default, limit in ROW.findall(section(title))}


def fields(struct, at=""):
    return {f"{at}{field.encode_name}" for field in msgspec.structs.fields(struct)}


@pytest.mark.parametrize("reason", [*WaitReason, "QueueFull"])
def test_every_reason_to_wait_has_a_row(reason):
    shown = "TooFewFreeGpus" if reason is WaitReason.DOES_NOT_FIT else str(reason)
    assert f"| `{shown}`" in OPERATIONS


@pytest.mark.parametrize("ground", [*PreemptionReason])
def test_every_reason_of_a_preemption_has_a_row(ground):
    assert f"| `{ground}` |" in OPERATIONS


def test_every_chart_value_has_a_row_with_its_default():
    queue = yaml.safe_load((CHART / "values.yaml").read_text())["queue"]
    written = {path: default for path, (default, _) in rows("Chart values").items()}
    assert written.pop("default.gpus[]") == "none"
    expected = {
        path: value if isinstance(value, str) else json.dumps(value)
        for path, value in values(queue)
        if path != "default.gpus"
    }
    assert written == expected


def test_every_field_of_a_quota_has_a_row():
    expected = {*fields(GpuQuotaSpec), *fields(ModelLimit, "gpus[].")}
    found = set(re.findall(r"^\| `([\w.\[\]]+)` \|", section("GPUQuota"), re.MULTILINE))
    assert found == expected - {"gpus"} | {"gpus[]"}


def test_every_field_of_a_cohort_has_a_row():
    expected = {*fields(GpuCohortSpec), *fields(IdlePods, "idlePods.")}
    found = set(re.findall(r"^\| `([\w.\[\]]+)` \|", section("GPUCohort"), re.MULTILINE))
    assert found == expected - {"gpus", "idlePods"} | {"gpus[]"}
