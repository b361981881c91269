# SPDX-License-Identifier: Apache-2.0
import pytest
from fixtures import cluster, idle, judged, kube, others, peaks, refusals, system

__all__ = ["cluster", "idle", "judged", "kube", "others", "peaks", "refusals", "system"]


def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.e2e)
