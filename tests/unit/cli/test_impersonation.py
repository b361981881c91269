# SPDX-License-Identifier: Apache-2.0
"""Writing commands with a kubeconfig that impersonates another user: every request does."""

import asyncio
import json

import pytest
from aiohttp import web
from fake_api import ApiServer, kubeconfig, serving

from gpupack_cli import main

NODE = "/apis/gpupack.dev/v1beta1/gpunodes/a"
USER = {"token": "of-an-administrator", "as": "ann", "as-groups": ["dev"]}


@pytest.fixture
async def called():
    """Run a command as `ann`; return its status and the users of all requests."""
    server, users = ApiServer(), []
    meta = {"name": "a", "resourceVersion": "1", "uid": "a"}
    server.put(NODE, {"metadata": meta, "spec": {}, "status": {"gpus": 1}})

    @web.middleware
    async def recorded(request, handler):
        shown = request.headers.get("Impersonate-User"), request.headers.get("Impersonate-Group")
        users.append((request.method, *shown))
        return await handler(request)

    app = server.app()
    app.middlewares.append(recorded)
    async with serving(app) as address:
        with kubeconfig(address, user=USER) as path:

            async def call(*arguments):
                given = [*arguments[:1], "--kubeconfig", path, *arguments[1:]]
                return await asyncio.to_thread(main.run_command, given), users

            yield call


@pytest.mark.parametrize(
    "arguments",
    [
        ("drain", "a", "--reason", "repair", "--no-wait"),
        ("submit", "--namespace", "team", "--image", "i", "--detach", "--", "true"),
    ],
    ids=lambda arguments: arguments[0],
)
async def test_writing_commands_impersonate_as_configured(called, arguments):
    ended, users = await called(*arguments)
    assert ended == 0
    assert all(each[1:] == ("ann", "dev") for each in users), json.dumps(users)
    assert {"PATCH", "POST"} & {each[0] for each in users}
