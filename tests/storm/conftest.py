# SPDX-License-Identifier: Apache-2.0
import pytest
from fixtures import cluster, fresh, idle, judged, kube, others, peaks, refusals, system, tell

__all__ = [
    "cluster",
    "fresh",
    "idle",
    "judged",
    "kube",
    "others",
    "peaks",
    "refusals",
    "system",
    "tell",
]


def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.e2e)
