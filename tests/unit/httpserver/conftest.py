# SPDX-License-Identifier: Apache-2.0
import pytest
from api_server import ApiServer
from fake_api import connected


@pytest.fixture
def server():
    """An API server without pods."""
    return ApiServer()


@pytest.fixture
async def api(server):
    """A connection to it."""
    async with connected(server.app()) as (connection, _):
        yield connection
