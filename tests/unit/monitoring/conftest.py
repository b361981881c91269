# SPDX-License-Identifier: Apache-2.0
import asyncio
import importlib
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[3]
SUFFIXES = ("", "_total", "_bucket", "_sum", "_count", "_created")


@pytest.fixture(scope="session")
def promtool():
    """Run promtool with these arguments, on this text."""
    binaries = str(ROOT / ".dev/bin")
    found = shutil.which("promtool", path=binaries) or shutil.which("promtool")
    if found is None:
        pytest.skip("there is no promtool: run `make prometheus`")
    return lambda *arguments, text=None: subprocess.run(
        [found, *arguments], input=text, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="session")
def metrics_table():
    """benchmarks/metrics_table.py."""
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(ROOT / "benchmarks"))
        return importlib.import_module("metrics_table")


@pytest.fixture(scope="session")
def registries(metrics_table):
    """What each part registers, by its name."""
    return asyncio.run(metrics_table.registries())


@pytest.fixture(scope="session")
def families(registries):
    """Whether a part shows a metric of this name; the regular expression of rules too."""
    names = {
        family.name + suffix
        for registry in registries.values()
        for family in registry.collect()
        for suffix in SUFFIXES
    }
    return lambda name: any(re.fullmatch(name, known) for known in names)
