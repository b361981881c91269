# SPDX-License-Identifier: Apache-2.0
import asyncio

import grpc
import grpc.aio
import pytest

from gpupack_agent.api import deviceplugin_pb2 as api
from gpupack_agent.api import deviceplugin_pb2_grpc as service
from gpupack_agent.device_tokens import DeviceToken, cdi_name
from gpupack_agent.errors import CdiUnwritable, StartRefused
from gpupack_agent.plugin_servicer import PluginServicer


@pytest.fixture
async def serve(folder):
    """Serve a plugin and connect to it as the kubelet does."""
    running = []

    async def started(plugin):
        server = grpc.aio.server()
        service.add_DevicePluginServicer_to_server(plugin, server)
        server.add_insecure_port(f"unix:{folder}/p.sock")
        await server.start()
        channel = grpc.aio.insecure_channel(f"unix:{folder}/p.sock")
        running.extend([(channel.close, ()), (server.stop, (None,))])
        return service.DevicePluginStub(channel)

    yield started
    for end, arguments in running:
        await end(*arguments)


async def nothing(_resource, _tokens, *, active):
    assert active()


def request(*ids):
    return api.PreStartContainerRequest(devices_ids=ids)


async def test_the_options_request_a_call_before_each_container_start(serve):
    stub = await serve(PluginServicer("x/gpu", nothing))
    options = await stub.GetDevicePluginOptions(api.Empty())
    assert options.pre_start_required
    assert not options.get_preferred_allocation_available


async def test_allocate_returns_a_cdi_device_per_container_without_any_query(serve):
    stub = await serve(PluginServicer("x/gpu", prepare=None))
    containers = [api.ContainerAllocateRequest(devices_ids=ids) for ids in (["b", "a"], ["c"])]
    answer = await stub.Allocate(api.AllocateRequest(container_requests=containers))
    found = [each.cdi_devices[0].name for each in answer.container_responses]
    assert found == [cdi_name(["a", "b"]), cdi_name(["c"])]


async def test_the_kubelet_gets_all_device_tokens_now_and_at_each_change(serve):
    plugin = PluginServicer("x/gpu", nothing)
    plugin.publish((DeviceToken("gpu-0"), DeviceToken("gpu-1")))
    stub = await serve(plugin)
    stream = stub.ListAndWatch(api.Empty())
    assert [device.health for device in (await stream.read()).devices] == ["Healthy", "Healthy"]
    assert plugin.streams == 1
    plugin.publish((DeviceToken("gpu-0"), DeviceToken("gpu-1", healthy=False)))
    assert [device.health for device in (await stream.read()).devices] == ["Healthy", "Unhealthy"]
    stream.cancel()


async def test_a_closed_stream_is_noticed(serve):
    plugin = PluginServicer("x/gpu", nothing)
    stream = (await serve(plugin)).ListAndWatch(api.Empty())
    await stream.read()
    stream.cancel()
    async with asyncio.timeout(30):
        while plugin.streams:
            await asyncio.sleep(0.01)


async def test_a_container_start_is_prepared_with_its_device_tokens(serve):
    seen = []

    async def prepare(resource, tokens, *, active):
        seen.append((resource, tokens, active()))

    await (await serve(PluginServicer("x/gpu", prepare))).PreStartContainer(request("b", "a"))
    assert seen == [("x/gpu", frozenset({"a", "b"}), True)]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StartRefused("held by another pod", pods=("a/b",)), grpc.StatusCode.FAILED_PRECONDITION),
        (CdiUnwritable("cannot write"), grpc.StatusCode.UNAVAILABLE),
    ],
)
async def test_a_refusal_reaches_the_kubelet_with_its_text_and_names_pods_in_the_log_alone(
    serve, error, code, caplog
):
    async def prepare(_resource, _tokens, *, active):
        del active
        raise error

    stub = await serve(PluginServicer("x/gpu", prepare))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.PreStartContainer(request("a"))
    assert (caught.value.code(), caught.value.details()) == (code, f"gpupack: {error}")
    assert f"{error} (pods: {', '.join(error.pods) or 'unknown'})" in caplog.text


async def test_a_call_that_the_kubelet_gave_up_is_not_active_any_more(serve):
    outcome = asyncio.get_running_loop().create_future()

    async def prepare(_resource, _tokens, *, active):
        try:
            while active():
                await asyncio.sleep(0.01)
            outcome.set_result("not active")
        except asyncio.CancelledError:
            outcome.set_result("cancelled")
            raise

    stub = await serve(PluginServicer("x/gpu", prepare))
    with pytest.raises(grpc.aio.AioRpcError, match="DEADLINE_EXCEEDED"):
        await stub.PreStartContainer(request("a"), timeout=0.1)
    assert await asyncio.wait_for(outcome, 30) in {"cancelled", "not active"}
