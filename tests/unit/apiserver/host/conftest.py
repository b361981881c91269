# SPDX-License-Identifier: Apache-2.0
import pytest
from host_server import HostServer


@pytest.fixture
def server(tmp_path):
    made = HostServer(tmp_path)
    yield made.start()
    made.stop()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Return a server for tests that release all their GPUs."""
    made = HostServer(tmp_path_factory.mktemp("shared"))
    yield made.start()
    made.stop()
