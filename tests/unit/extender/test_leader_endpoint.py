# SPDX-License-Identifier: Apache-2.0
"""The Service of the plan API leads to the one pod that leads."""

import asyncio
import contextlib

import pytest
from aiohttp import web

from gpupack_extender import leader_endpoint
from gpupack_extender.leader_endpoint import (
    ENDPOINT_SLICES,
    SERVICE,
    LeaderEndpoint,
    OwnPod,
)
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


class Takeover:
    """Stands where the wait for a predecessor is; terms without one are recorded."""

    def __init__(self):
        self.terms = 1
        self.begun = asyncio.Event()
        self.alone_in = []

    def has_no_predecessor(self, term):
        self.alone_in.append(term)


@pytest.fixture
def slices():
    return Slices()


@pytest.fixture
async def pod(slices, tmp_path):
    """Make the pod with this number; it leads by default."""
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

        def numbered(number, *, leads=True, address=None):
            address = f"10.0.0.{number}" if address is None else address
            own = OwnPod(namespace="system", name=f"s-{number}", uid=f"u-{number}", address=address)
            return LeaderEndpoint(
                api=api, pod=own, leads=lambda: leads, is_known=known, takeover=Takeover()
            )

        known = asyncio.Event()
        known.set()
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
    standby = pod(2, leads=False)
    await looked_once(standby)
    assert slices.slice is None
    assert standby.looked.is_set()


async def test_a_leader_without_a_slice_has_no_predecessor(pod):
    first = pod(1)
    await looked_once(first)
    assert first.takeover.alone_in == [1]


@pytest.mark.parametrize("before", [1, 2])
async def test_while_a_pod_that_led_exists_it_may_have_written(pod, before):
    await pod(before).publish()
    leader = pod(1)
    await looked_once(leader)
    assert leader.takeover.alone_in == []


async def test_a_slice_that_is_deleted_within_a_term_proves_nothing(pod, slices):
    await pod(2).publish()
    leader = pod(1)
    await looked_once(leader)
    slices.slice, slices.version = None, 0
    await looked_once(leader)
    assert slices.addresses == ["10.0.0.1"]
    assert leader.takeover.alone_in == []


async def test_a_new_term_is_looked_at_at_once(pod, slices, monkeypatch):
    monkeypatch.setattr(leader_endpoint, "LOOK_SECONDS", 3600.0)
    leader = pod(1, leads=False)
    task = asyncio.create_task(leader.run())
    await leader.looked.wait()
    leader.leads = lambda: True
    leader.takeover.begun.set()
    async with asyncio.timeout(60):
        while slices.slice is None:
            await asyncio.sleep(0.01)
    task.cancel()


async def test_outside_a_cluster_there_is_nothing_to_lead_to(pod, slices):
    await looked_once(pod(1, address=""))
    assert slices.slice is None


async def test_an_address_of_ipv6_is_one_of_ipv6(pod, slices):
    await pod(1, address="fd00::1").publish()
    assert slices.slice["addressType"] == "IPv6"
