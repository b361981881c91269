# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest
from fake_api import ApiServer, connected

from gpupack_cli import main


@pytest.fixture
async def server():
    """Return an API server; `api` is connected to it, and `called` runs a command on it."""
    made = ApiServer()
    async with connected(made.app()) as (api, path):

        async def called(*arguments):
            given = [*arguments, "--kubeconfig", path]
            return await asyncio.to_thread(main.run_command, given)

        made.api, made.called, made.kubeconfig = api, called, path
        yield made
