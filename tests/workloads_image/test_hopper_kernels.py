# SPDX-License-Identifier: Apache-2.0
"""The kernels in Gluon, which no interpreter runs, compiled for a Hopper GPU that need not be here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HOPPER_SHARED_KIB = 227


@pytest.fixture(scope="module")
def found():
    environ = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-B", "compile_hopper.py"],
        cwd=Path(__file__).parent, env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_all_compile_and_fit_into_shared_memory(found):
    assert len(found) == 6
    assert max(each["shared_kib"] for each in found) <= HOPPER_SHARED_KIB


def test_little_is_spilled(found):
    assert max(each["stack"] for each in found) <= 64
