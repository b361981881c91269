# SPDX-License-Identifier: Apache-2.0
import pytest
from fixtures import cluster, idle, kube, system, tell

__all__ = ["cluster", "idle", "kube", "system", "tell"]


def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.e2e)
