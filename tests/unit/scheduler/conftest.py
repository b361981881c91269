# SPDX-License-Identifier: Apache-2.0
import pytest
from extender_builders import World


@pytest.fixture
def world():
    """Two nodes of four GPUs, nothing held."""
    built = World()
    built.add_node("a")
    built.add_node("b")
    return built
