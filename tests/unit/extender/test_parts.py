# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest
from aiohttp import web
from fake_api import connected
from self_signed import self_signed

from gpupack_extender.parts import parts_of
from gpupack_extender.settings import Settings
from gpupack_kubeclient import objects
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.resources import PODS
from gpupack_kubeclient.transport import CONNECTIONS


@pytest.fixture
def settings(tmp_path):
    certificate, key = map(str, self_signed(tmp_path))
    environ = {"GPUPACK_TLS_CERT": certificate, "GPUPACK_TLS_KEY": key, "POD_NAME": "s-1"}
    return Settings.from_environ(environ | {"GPUPACK_PLAN_HOLD_SECONDS": "0.001"})


async def test_the_lease_is_read_however_many_other_calls_hold_their_connections(settings):
    """As the API server takes long to answer them when many pods start at once."""
    lease = {"metadata": {"name": "gpupack-scheduler"}, "spec": {"holderIdentity": "s-1_0c7a"}}
    held = []

    async def answer(request):
        if "leases" not in request.path:
            held.append(request.path)
            await asyncio.sleep(600)
        if "watch" in request.query:
            await asyncio.sleep(600)
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": [lease]})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with (
        connected(app) as (api, kubeconfig),
        Api.connect({"KUBECONFIG": kubeconfig}) as leases,
    ):
        parts = parts_of(settings, api, leases)
        async with asyncio.timeout(60), asyncio.TaskGroup() as calls:
            begun = [
                calls.create_task(api.get(PODS, f"p{n}", namespace="a")) for n in range(CONNECTIONS)
            ]
            while len(held) < len(begun):
                await asyncio.sleep(0.01)
            leader = parts.reflectors["leader"]
            begun.append(calls.create_task(leader.run()))
            await leader.synced.wait()
            for each in begun:
                each.cancel()


async def test_a_new_leader_lists_all_that_decisions_rest_on(server, api, settings):
    parts = parts_of(settings, api, api)
    leader = parts.reflectors["leader"]
    spec = objects.LeaseSpec(holder_identity="s-1_0c7a", lease_duration_seconds=15)
    leader._store.upsert(objects.Lease(spec=spec))
    await asyncio.sleep(0.01)
    due = {name for name, reflector in parts.reflectors.items() if reflector._wait_seconds() <= 0}
    assert due == {
        "nodes",
        "gpunodes",
        "gpujobs",
        "gpuquotas",
        "gpucohorts",
        "gpureservations",
        "pods",
    }
