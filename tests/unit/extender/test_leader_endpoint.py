# SPDX-License-Identifier: Apache-2.0
"""The Service of the plan API leads to the one pod that decides."""

import asyncio
import contextlib

import pytest
from aiohttp import web

from gpupack_extender.leader_endpoint import ENDPOINT_SLICES, SERVICE, LeaderEndpoint, OwnPod
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.errors import Conflict

PATH = "/apis/discovery.k8s.io/v1/namespaces/system/endpointslices"


class Slices:
    """The one slice, with a resourceVersion; counts writes."""

    def __init__(self):
        self.slice = None
        self.version = 0
        self.writes = 0

    @property
    def addresses(self):
        return [a for endpoint in self.slice["endpoints"] for a in endpoint["addresses"]]

    def app(self):
        app = web.Application()
        app.router.add_get(f"{PATH}/gpupack-extender", self.read)
        app.router.add_post(PATH, self.write)
        app.router.add_put(f"{PATH}/gpupack-extender", self.write)
        return app

    async def read(self, _):
        return web.json_response(self.slice or {}, status=200 if self.slice else 404)

    async def write(self, request):
        body = await request.json()
        if body["metadata"].get("resourceVersion", "0") != str(self.version):
            return web.json_response({"reason": "Conflict"}, status=409)
        self.writes += 1
        self.version += 1
        self.slice = body
        self.slice["metadata"]["resourceVersion"] = str(self.version)
        return web.json_response(self.slice)


@pytest.fixture
def slices():
    return Slices()


@pytest.fixture
async def pod(slices, tmp_path):
    """Make the pod with this number; it decides by default."""
    runner = web.AppRunner(slices.app(), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "{apiVersion: v1, kind: Config, current-context: x,"
        "contexts: [{name: x, context: {cluster: c, user: u}}],"
        f"clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{runner.addresses[0][1]}'}}}}],"
        "users: [{name: u, user: {token: secret}}]}"
    )
    async with Api.connect({"KUBECONFIG": str(kubeconfig)}) as api:

        def numbered(number, *, decides=True, address=None):
            address = f"10.0.0.{number}" if address is None else address
            own = OwnPod(namespace="system", name=f"s-{number}", uid=f"u-{number}", address=address)
            return LeaderEndpoint(api=api, pod=own, decides=lambda: decides)

        yield numbered
    await runner.cleanup()


async def looked_once(endpoint):
    """One look of its loop."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(endpoint.run(), timeout=0.5)


async def test_the_first_leader_is_where_the_service_leads(pod, slices):
    await pod(1).publish()
    assert slices.addresses == ["10.0.0.1"]
    assert slices.slice["addressType"] == "IPv4"
    assert slices.slice["metadata"]["labels"]["kubernetes.io/service-name"] == "gpupack-extender"
    (owner,) = slices.slice["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Pod", "u-1")


async def test_a_successor_takes_the_service_over_as_a_whole(pod, slices):
    await pod(1).publish()
    await pod(2).publish()
    assert slices.addresses == ["10.0.0.2"]
    assert slices.slice["metadata"]["ownerReferences"][0]["uid"] == "u-2"


async def test_a_correct_endpoint_is_not_written_again(pod, slices):
    await pod(1).publish()
    await pod(1).publish()
    assert slices.writes == 1


async def test_a_write_over_another_leaders_newer_one_is_refused(pod, slices):
    await pod(1).publish()
    late, seen = pod(2), "0"
    with pytest.raises(Conflict):
        await late.api.replace(
            ENDPOINT_SLICES, SERVICE, late._slice(seen), namespace=late.pod.namespace
        )
    assert slices.addresses == ["10.0.0.1"]


async def test_a_standby_writes_nothing(pod, slices):
    await looked_once(pod(2, decides=False))
    assert slices.slice is None


async def test_outside_a_cluster_there_is_nothing_to_lead_to(pod, slices):
    await looked_once(pod(1, address=""))
    assert slices.slice is None


async def test_an_address_of_ipv6_is_one_of_ipv6(pod, slices):
    await pod(1, address="fd00::1").publish()
    assert slices.slice["addressType"] == "IPv6"
