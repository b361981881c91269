# SPDX-License-Identifier: Apache-2.0
"""Being known to the kubelet, through all of its restarts.

Level-triggered: whenever the folder of sockets changes, and every few seconds anyway, three things
are compared with what they were at the last registration:

* the kubelet's socket is another one: the kubelet restarted;
* ours is gone: a starting kubelet deletes all sockets, also one that we made a moment before;
* no ListAndWatch is open: the kubelet dropped us. It does so to a plugin that registers twice while
  the end of the first connection is still being handled.

Then we listen anew, on a socket of a new name, and register. The old server is stopped first, for
the third reason; and a new name is needed because gRPC removes a socket's file when it stops
listening there, which would take the successor's file of the same name.

Where another device plugin hands out the node's GPUs we do neither, and stop where we did.
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
"""The kubelet connects back within Register, and takes up to 10 s for that."""
TICK_SECONDS = 2.0
"""Between two looks without an event, and before a failed registration is tried again."""
STREAM_SECONDS = 3.0
"""How long after Register the kubelet may take to open ListAndWatch."""


@dataclasses.dataclass(frozen=True, slots=True)
class Identity:
    """Tells one socket file from its successor of the same name."""

    inode: int
    changed_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class Registered:
    """With whom we registered, when, and where we listen."""

    kubelet: Identity
    socket: pathlib.Path
    at: float


class Registration:
    """Keeps one plugin registered.

    Args:
        plugin: what is served.
        folder: the kubelet's device-plugins folder.
        allowed: whether the node's GPUs are ours to hand out, at this moment.
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
        """Whether the kubelet knows us and listens."""
        return self._registered is not None and self._plugin.streams > 0

    async def run(self) -> None:
        """Register, and again whenever it is needed, until cancelled."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._sweep()
        inotify = _watch(self._folder)
        with inotify or contextlib.nullcontext():
            try:
                while True:
                    await self._keep()
                    await _event(inotify)
            finally:
                await self._stop()

    async def _keep(self) -> None:
        kubelet = identity(self._folder / KUBELET_SOCKET)
        if not self._allowed():
            await self._stop()
        elif kubelet is None:
            self._registered = None
        elif not self._stands(kubelet):
            await self._register(kubelet)

    def _stands(self, kubelet: Identity) -> bool:
        registered = self._registered
        if registered is None or registered.kubelet != kubelet or not registered.socket.exists():
            return False
        return self._plugin.streams > 0 or time.monotonic() - registered.at < STREAM_SECONDS

    async def _register(self, kubelet: Identity) -> None:
        await self._stop()
        socket = await self._listen()
        try:
            await self._announce(socket)
        except grpc.aio.AioRpcError as error:
            log.warning(
                "the kubelet does not register %s: %s %s; trying again",
                self._plugin.resource,
                error.code().name,
                error.details(),
            )
            return
        self._registered = Registered(kubelet=kubelet, socket=socket, at=time.monotonic())
        log.info("registered %s at the kubelet as %s", self._plugin.resource, socket.name)

    async def _listen(self) -> pathlib.Path:
        socket = self._folder / f"{self._prefix}{secrets.token_hex(4)}.sock"
        server = grpc.aio.server()
        service.add_DevicePluginServicer_to_server(self._plugin, server)
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        self._server = server
        return socket

    async def _announce(self, socket: pathlib.Path) -> None:
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
        """Stop listening. Calls in progress end: the kubelet repeats them where we listen next."""
        self._registered = None
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(grace=None)

    def _sweep(self) -> None:
        """Remove what an agent that was killed left behind."""
        for path in self._folder.glob(f"{self._prefix}*.sock"):
            path.unlink(missing_ok=True)

    @property
    def _prefix(self) -> str:
        """One dot after it keeps gpu apart from gpu-share, mig-1g.18gb from mig-1g.18gb.me."""
        name = self._plugin.resource.rpartition("/")[2].replace(".", "_")
        return f"gpupack.{name}."


def identity(socket: pathlib.Path) -> Identity | None:
    """Identify a socket's file; None where there is none."""
    try:
        stat = socket.stat()
    except FileNotFoundError:
        return None
    return Identity(inode=stat.st_ino, changed_ns=stat.st_ctime_ns)


def _watch(folder: pathlib.Path) -> Inotify | None:
    """Ask for events of a folder; None where the host's limits allow no more: ticks are enough."""
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

    Not by asyncio.wait_for: before Python 3.12 it loses a cancellation that comes together with the
    result, and the agent would never end.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(TICK_SECONDS):
            await (inotify.get() if inotify else asyncio.sleep(TICK_SECONDS))
