# SPDX-License-Identifier: Apache-2.0
import inspect
import re
from pathlib import Path

import pytest

from gpupack_kubeclient import objects

ROOT = Path(__file__).parents[3]
READERS = (
    "agent",
    "benchmarks",
    "crds",
    "extender",
    "lib",
    "operator",
    "tests",
)
VIEWS = [v for _, v in inspect.getmembers(objects, inspect.isclass) if issubclass(v, objects.View)]


@pytest.fixture(scope="module")
def attributes_read():
    files = [path for folder in READERS for path in (ROOT / folder).rglob("*.py")]
    return {name for path in files for name in re.findall(r"\.(\w+)", path.read_text())}


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.__name__)
def test_a_view_holds_only_fields_that_are_read(view, attributes_read):
    assert set(view.__struct_fields__) - attributes_read == set()
