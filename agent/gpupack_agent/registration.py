# SPDX-License-Identifier: Apache-2.0
"""The registration of a device plugin at the kubelet, kept through all restarts of the kubelet.

It is level-triggered. When the folder of sockets changes, and every few seconds, it checks three
conditions against the last registration:

* The kubelet's socket differs: the kubelet restarted.
* The plugin's socket is gone: a starting kubelet deletes all sockets, also one that was created a
  moment before.
* No ListAndWatch is open: the kubelet dropped the plugin. It does so to a plugin that registers
  twice while the kubelet still handles the end of the first connection.

If one of them holds, the plugin listens on a socket with a new name and registers again. The old
server stops first, because of the third condition. A new name is needed because gRPC removes a
socket's file when it stops listening, and would remove the successor's file of the same name.

Where another device plugin hands out the node's GPUs, this plugin neither listens nor registers. If
it did before, it stops.
"""

import asyncio
import contextlib
import dataclasses
import logging
import pathlib
import secrets
import time
from collections.abc import Callable

import grpc
import grpc.aio
from asyncinotify import Inotify, Mask

from gpupack_agent.api import deviceplugin_pb2 as api
from gpupack_agent.api import deviceplugin_pb2_grpc as service
from gpupack_agent.plugin_servicer import OPTIONS, PluginServicer

log = logging.getLogger(__name__)

VERSION = "v1beta1"
KUBELET_SOCKET = "kubelet.sock"
REGISTER_SECONDS = 15.0
"""The time limit of Register. The kubelet connects back within it, which takes up to 10 s."""
TICK_SECONDS = 2.0
"""The time between two checks without an event, and before a failed registration is retried."""
STREAM_SECONDS = 3.0
"""The time that the kubelet may take after Register to open ListAndWatch."""


@dataclasses.dataclass(frozen=True, slots=True)
class SocketIdentity:
    """The identity of a socket file, which differs from that of a successor of the same name."""

    inode: int
    changed_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class Registered:
    """A registration: the kubelet's socket, the plugin's socket, and the monotonic time."""

    kubelet: SocketIdentity
    socket: pathlib.Path
    at: float


class Registration:
    """The registration of one plugin.

    Args:
        plugin: the plugin that is served.
        folder: the kubelet's device-plugins folder.
        allowed: tells whether gpupack may hand out the node's GPUs at this moment.
    """

    def __init__(
        self,
        plugin: PluginServicer,
        folder: pathlib.Path,
        allowed: Callable[[], bool] = lambda: True,
    ) -> None:
        self._plugin = plugin
        self._folder = folder
        self._allowed = allowed
        self._registered: Registered | None = None
        self._server: grpc.aio.Server | None = None

    @property
    def complete(self) -> bool:
        """Tell whether the plugin is registered and the kubelet has ListAndWatch open."""
        return self._registered is not None and self._plugin.streams > 0

    async def run(self) -> None:
        """Register, and repeat this whenever it is needed, until cancelled."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._remove_stale_sockets()
        inotify = _watch(self._folder)
        with inotify or contextlib.nullcontext():
            try:
                while True:
                    await self._reconcile()
                    await _event(inotify)
            finally:
                await self._stop()

    async def _reconcile(self) -> None:
        kubelet = socket_identity(self._folder / KUBELET_SOCKET)
        if not self._allowed():
            await self._stop()
        elif kubelet is None:
            self._registered = None
        elif not self._is_current(kubelet):
            await self._register(kubelet)

    def _is_current(self, kubelet: SocketIdentity) -> bool:
        registered = self._registered
        if registered is None or registered.kubelet != kubelet or not registered.socket.exists():
            return False
        return self._plugin.streams > 0 or time.monotonic() - registered.at < STREAM_SECONDS

    async def _register(self, kubelet: SocketIdentity) -> None:
        await self._stop()
        socket = await self._listen()
        try:
            await self._send_register(socket)
        except grpc.aio.AioRpcError as error:
            log.warning(
                "cannot register %s with the kubelet: %s %s; trying again",
                self._plugin.resource,
                error.code().name,
                error.details(),
            )
            return
        self._registered = Registered(kubelet=kubelet, socket=socket, at=time.monotonic())
        log.info("registered %s with the kubelet as %s", self._plugin.resource, socket.name)

    async def _listen(self) -> pathlib.Path:
        socket = self._folder / f"{self._prefix}{secrets.token_hex(4)}.sock"
        server = grpc.aio.server()
        service.add_DevicePluginServicer_to_server(self._plugin, server)
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        self._server = server
        return socket

    async def _send_register(self, socket: pathlib.Path) -> None:
        request = api.RegisterRequest(
            version=VERSION,
            endpoint=socket.name,
            resource_name=self._plugin.resource,
            options=OPTIONS,
        )
        target = f"unix:{self._folder / KUBELET_SOCKET}"
        async with grpc.aio.insecure_channel(target) as channel:
            stub = service.RegistrationStub(channel)
            await stub.Register(request, timeout=REGISTER_SECONDS)

    async def _stop(self) -> None:
        """Stop listening. Calls in progress end: the kubelet repeats them at the next socket."""
        self._registered = None
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(grace=None)

    def _remove_stale_sockets(self) -> None:
        """Remove sockets that a killed agent left behind."""
        for path in self._folder.glob(f"{self._prefix}*.sock"):
            path.unlink(missing_ok=True)

    @property
    def _prefix(self) -> str:
        """Return the beginning of the sockets' names.

        Its last dot distinguishes gpu from gpu-share, and mig-1g.18gb from mig-1g.18gb.me.
        """
        name = self._plugin.resource.rpartition("/")[2].replace(".", "_")
        return f"gpupack.{name}."


def socket_identity(socket: pathlib.Path) -> SocketIdentity | None:
    """Identify a socket's file; return None if there is none."""
    try:
        stat = socket.stat()
    except FileNotFoundError:
        return None
    return SocketIdentity(inode=stat.st_ino, changed_ns=stat.st_ctime_ns)


def _watch(folder: pathlib.Path) -> Inotify | None:
    """Watch a folder; return None where the host's limits allow no watch: ticks are enough."""
    try:
        with contextlib.ExitStack() as stack:
            inotify = stack.enter_context(Inotify())
            inotify.add_watch(folder, Mask.CREATE | Mask.DELETE | Mask.MOVED_TO)
            stack.pop_all()
            return inotify
    except OSError as error:
        log.warning(
            "cannot watch %s (%s): a restarted kubelet is noticed within %g s; "
            "raise fs.inotify.max_user_instances and max_user_watches to notice it at once",
            *(folder, error, TICK_SECONDS),
        )
        return None


async def _event(inotify: Inotify | None) -> None:
    """Wait for an event or a tick.

    It does not use asyncio.wait_for: before Python 3.12 that loses a cancellation that comes
    together with the result, and the agent would never end.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(TICK_SECONDS):
            await (inotify.get() if inotify else asyncio.sleep(TICK_SECONDS))
