# SPDX-License-Identifier: Apache-2.0
import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import gpupack

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "client" / "gpupack"
PROJECT = tomllib.loads((ROOT / "client/pyproject.toml").read_text())
LIBRARIES = {"nvidia-ml-py": "pynvml", "pyyaml": "yaml"}
OURS = {
    "gpupack",
    "gpupack_devices",
    "gpupack_kubeclient",
    "gpupack_placement",
    "gpupack_restapi",
}


def imported():
    """Return the top-level modules that any file of the package imports."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield node.module.partition(".")[0]


def required():
    extras = PROJECT["project"]["optional-dependencies"].values()
    hook = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["custom"]
    for text in [*hook["libraries"], *(each for extra in extras for each in extra)]:
        name, bound, _ = text.partition(">=")
        assert bound, f"{text} has no lower bound"
        yield LIBRARIES.get(name, name)


def test_imports_and_requirements_agree():
    assert set(imported()) - set(sys.stdlib_module_names) - OURS == set(required())


def test_every_exported_name_exists_and_is_typed():
    for name in gpupack.__all__:
        assert getattr(gpupack, name) is not None, name
    assert set(gpupack.__all__) == set(gpupack._MODULE_OF)
    assert (PACKAGE / "py.typed").exists()


def test_settings_alone_need_neither_numpy_nor_httpx():
    libraries = "{'numpy', 'httpx', 'yaml'}"
    code = f"import gpupack.process_setup, sys; print(sorted({libraries} & {{*sys.modules}}))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(ROOT / "client") + ":" + ":".join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
