# SPDX-License-Identifier: Apache-2.0
"""`helm upgrade --reuse-values` renders a new chart with the defaults of the installed one."""

import copy
import importlib.util
import json
import pathlib

import pytest
import yaml

from gpupack_devcluster.build import KUBERNETES

ROOT = pathlib.Path(__file__).parents[3]
CHART = ROOT / "charts/gpupack"
REQUIRED = (CHART / "files/required-values.txt").read_text().split()
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
VALUES["image"]["registry"] = "r.example"
CHECK = pathlib.Path("templates/checks/first/values.yaml")


@pytest.fixture(scope="module")
def required_values():
    """Load charts/required_values.py."""
    spec = importlib.util.spec_from_file_location(
        "required_values", ROOT / "charts/required_values.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def without(path):
    """Return the chart's defaults without a value, as in a version before it."""
    values = copy.deepcopy(VALUES)
    *parents, name = path.split(".")
    holder = values
    for parent in parents:
        holder = holder[parent]
    del holder[name]
    return values


@pytest.fixture
def rendered(helm, chart_copy):
    """Render the chart with these defaults."""

    def render(values, *, check_alone=False):
        (chart_copy / "values.yaml").write_text(json.dumps(values))
        if check_alone:
            for path in (chart_copy / "templates").rglob("*.*"):
                if path.relative_to(chart_copy) != CHECK:
                    path.unlink()
        return helm("template", "gpupack", str(chart_copy), f"--kube-version={KUBERNETES}")

    return render


def test_the_list_of_required_values_is_up_to_date(required_values):
    assert (CHART / "files/required-values.txt").read_text() == required_values.render()


@pytest.mark.parametrize("name", [path for path in REQUIRED if "." not in path])
def test_reused_values_without_a_section_fail_with_the_flag_to_use(rendered, name):
    done = rendered(without(name))
    assert done.returncode == 1
    assert f"are missing: {name}. " in done.stderr
    assert "--reset-then-reuse-values" in done.stderr
    assert "nil pointer" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in REQUIRED if "." in path])
def test_reused_values_without_a_field_fail_with_the_flag_to_use(rendered, path):
    done = rendered(without(path), check_alone=True)
    assert done.returncode == 1
    assert f"are missing: {path}. " in done.stderr
    assert "--reset-then-reuse-values" in done.stderr


def test_many_missing_values_are_counted(rendered):
    done = rendered({"image": VALUES["image"]})
    assert " and 1" in done.stderr
    assert " more. " in done.stderr


def optional(values, path=""):
    """Return paths of maps and values that may be absent."""
    for name, value in values.items():
        here = f"{path}{name}"
        if here not in REQUIRED:
            yield here
        elif any(path.startswith(f"{here}.") for path in REQUIRED):
            yield from optional(value, f"{here}.")


def test_the_chart_renders_without_any_value_that_is_not_required(rendered):
    values = copy.deepcopy(VALUES)
    left_out = set(optional(VALUES))
    left_out.remove("image.registry")  # which has no default
    assert len(left_out) > 20
    for path in left_out:
        *parents, name = path.split(".")
        holder = values
        for parent in parents:
            holder = holder[parent]
        del holder[name]
    done = rendered(values)
    assert (done.returncode, done.stderr) == (0, "")
