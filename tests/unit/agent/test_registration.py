# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib
import errno

import pytest
from asyncinotify import Inotify, Mask

from gpupack_agent import registration as module
from gpupack_agent.api import deviceplugin_pb2 as api
from gpupack_agent.plugin_servicer import PluginServicer
from gpupack_agent.registration import Registration, _event
from gpupack_crds import names


async def prepare(_resource, _tokens, *, active):
    del active


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.02)


@pytest.fixture
async def registration(kubelet):
    plugin = PluginServicer(names.GPU, prepare)
    kept = Registration(plugin, kubelet.folder / "device-plugins")
    task = asyncio.create_task(kept.run())
    yield kept
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def sockets(kubelet):
    return {path.name for path in (kubelet.folder / "device-plugins").glob("gpupack*.sock")}


async def watched(kubelet):
    """Do what a kubelet does after Register: keep a ListAndWatch open."""
    stream = kubelet.plugin().ListAndWatch(api.Empty())
    await stream.read()
    return stream


async def test_a_plugin_registers_with_its_resource_and_its_options(kubelet, registration):
    await until(lambda: kubelet.registrations)
    request = kubelet.registrations[0]
    assert (request.version, request.resource_name) == ("v1beta1", names.GPU)
    assert request.options.pre_start_required
    assert not registration.complete
    await watched(kubelet)
    await until(lambda: registration.complete)


async def test_a_restarted_kubelet_gets_a_fresh_socket(kubelet, registration):
    await until(lambda: kubelet.registrations)
    await watched(kubelet)
    await kubelet.stop()
    await kubelet.start()
    await until(lambda: len(kubelet.registrations) == 2)
    first, second = (request.endpoint for request in kubelet.registrations)
    assert first != second
    await watched(kubelet)
    await until(lambda: registration.complete)
    assert sockets(kubelet) == {second}


@pytest.fixture
def no_inotify(monkeypatch):
    def refuse():
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(module, "Inotify", refuse)


async def test_without_inotify_a_restarted_kubelet_is_noticed_by_ticks(
    no_inotify, kubelet, registration
):
    await until(lambda: kubelet.registrations)
    await watched(kubelet)
    await kubelet.stop()
    await kubelet.start()
    await until(lambda: len(kubelet.registrations) == 2)


async def test_a_deleted_socket_is_created_again(kubelet, registration):
    await until(lambda: kubelet.registrations)
    await watched(kubelet)
    (kubelet.folder / "device-plugins" / kubelet.registrations[0].endpoint).unlink()
    await until(lambda: len(kubelet.registrations) == 2)
    await watched(kubelet)
    await until(lambda: registration.complete)


async def test_a_plugin_registers_again_if_the_kubelet_opens_no_stream(
    kubelet, registration, monkeypatch
):
    monkeypatch.setattr("gpupack_agent.registration.STREAM_SECONDS", 0.1)
    monkeypatch.setattr("gpupack_agent.registration.TICK_SECONDS", 0.1)
    await until(lambda: len(kubelet.registrations) >= 2)
    assert not registration.complete


async def test_an_agent_that_starts_before_the_kubelet_registers_when_it_comes(
    kubelet, registration
):
    del registration
    await kubelet.stop()
    kubelet.registrations.clear()
    (kubelet.folder / "device-plugins/kubelet.sock").unlink(missing_ok=True)
    await kubelet.start()
    await until(lambda: kubelet.registrations)


async def test_a_plugin_stops_while_another_one_serves_the_node(kubelet, monkeypatch):
    monkeypatch.setattr("gpupack_agent.registration.TICK_SECONDS", 0.05)
    allowed = {"now": False}
    folder = kubelet.folder / "device-plugins"
    kept = Registration(PluginServicer(names.GPU, prepare), folder, lambda: allowed["now"])
    task = asyncio.create_task(kept.run())
    await asyncio.sleep(0.3)
    assert kubelet.registrations == []
    allowed["now"] = True
    await until(lambda: kubelet.registrations)
    await watched(kubelet)
    allowed["now"] = False
    await until(lambda: not sockets(kubelet))
    assert not kept.complete
    allowed["now"] = True
    await until(lambda: len(kubelet.registrations) == 2)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_only_sockets_of_a_killed_agent_are_removed(kubelet):
    folder = kubelet.folder / "device-plugins"
    (folder / "gpupack.gpu.dead.sock").touch()
    (folder / "gpupack.gpu-share.other.sock").touch()
    task = asyncio.create_task(Registration(PluginServicer(names.GPU, prepare), folder).run())
    await until(lambda: kubelet.registrations)
    left = sockets(kubelet) - {kubelet.registrations[0].endpoint}
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert left == {"gpupack.gpu-share.other.sock"}
    assert sockets(kubelet) == left


@pytest.mark.parametrize("turns", range(6))
async def test_a_cancellation_that_comes_with_an_event_is_not_lost(folder, turns):
    async def for_ever():
        with Inotify() as inotify:
            inotify.add_watch(folder, Mask.CREATE)
            while True:
                await _event(inotify)

    task = asyncio.create_task(for_ever())
    await asyncio.sleep(0.01)
    (folder / "new").touch()
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=30)
    assert done == {task}
