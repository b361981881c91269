# SPDX-License-Identifier: Apache-2.0
"""A server of the extender on a port of its own."""

import asyncio
import contextlib


@contextlib.asynccontextmanager
async def listening(server):
    """Serve; yields the port."""
    server.config.host, server.config.port = "127.0.0.1", 0
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await task
