# SPDX-License-Identifier: Apache-2.0
"""The wheels of the simulator and of its libraries need nothing else of this repository."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PathDistribution, packages_distributions
from pathlib import Path

import pytest
from processes import run_process

ROOT = Path(__file__).parents[3]
COMPONENTS = {
    "lib/cost": "gpupack_cost",
    "lib/devices": "gpupack_devices",
    "lib/placement": "gpupack_placement",
    "lib/queue": "gpupack_queue",
    "lib/terminal": "gpupack_terminal",
    "simulator": "gpupack_simulator",
}
OURS = {package: package.replace("_", "-") for package in COMPONENTS.values()}
READMES = ("lib/placement/README.md", "lib/queue/README.md")
NAME = re.compile(r"[A-Za-z0-9-]+")
ACROSS_LINES = re.DOTALL | re.MULTILINE


def requirements(component):
    """Names, normalised; those of extras too."""
    project = tomllib.loads((ROOT / component / "pyproject.toml").read_text())["project"]
    extras = project.get("optional-dependencies", {}).values()
    for requirement in [*project["dependencies"], *(r for extra in extras for r in extra)]:
        yield NAME.match(requirement)[0].lower(), requirement


def imported(package):
    """Top-level modules that any file of it imports, wherever in the file."""
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module.partition(".")[0]


@pytest.mark.parametrize("component", COMPONENTS)
def test_required_packages_are_exactly_the_imported_ones(component):
    package = COMPONENTS[component]
    found = set(imported(ROOT / component / package))
    others = found - set(sys.stdlib_module_names) - {package}
    known = packages_distributions()
    needed = {
        OURS.get(name) or known.get(name, [name.replace("_", "-")])[0].lower() for name in others
    }
    if "zoneinfo" in found:
        needed.add("tzdata")  # the time zones, on systems without them
    assert needed == {name for name, _ in requirements(component)}


@pytest.mark.parametrize("component", COMPONENTS)
def test_every_requirement_has_a_lower_bound(component):
    assert [text for _, text in requirements(component) if ">=" not in text] == []


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The wheels, built and unpacked where nothing else of ours is."""
    folder = tmp_path_factory.mktemp("wheels")
    offline = ("--quiet", "--no-index", "--no-deps", "--disable-pip-version-check")
    pip = [sys.executable, "-m", "pip"]
    built = [ROOT / component for component in COMPONENTS]
    subprocess.run(
        [*pip, "wheel", *offline, "--no-build-isolation", "-w", folder, *built], check=True
    )
    target = folder / "site"
    wheels = [str(wheel) for wheel in folder.glob("*.whl")]
    subprocess.run([*pip, "install", *offline, "--target", target, *wheels], check=True)
    return target


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_wheel_says_what_it_is(site, component):
    package = COMPONENTS[component]
    (info,) = site.glob(f"{package}-*.dist-info")
    metadata = PathDistribution(info).metadata
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_payload().startswith(f"# {OURS[package]}\n")
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    assert (site / package / "py.typed").exists()


def test_the_command_of_the_wheel_runs_and_draws_its_report(site, tmp_path):
    scenario = ROOT / "examples/simulator/classroom.yaml"
    done = run_process(
        [site / "bin/gpupack-simulator", "run", scenario, "-q", "--out", "out"],
        cwd=tmp_path,
        PYTHONPATH=str(site),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "<html" in (tmp_path / "out/report.html").read_text()


def test_the_examples_of_the_readmes_run():
    for name in READMES:
        names = {}
        for example in re.findall(
            r"^```python\n(.*?)^```", (ROOT / name).read_text(), ACROSS_LINES
        ):
            exec(compile(example, name, "exec"), names)
