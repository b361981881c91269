# SPDX-License-Identifier: Apache-2.0
"""The supervisor of MPS daemons: one for each GPU of which pods hold limited shares.

It depends only on the folder and has no right at the API server. Its daemons end with it, and all
work on their GPUs with them. So only administrators restart it (the DaemonSet's update strategy is
OnDelete), and the end of an agent changes nothing here.

A daemon serves users of all UIDs at once (`-multiuser-server`); without this option it would serve
one after the other. A daemon uses one GPU and does not change its compute mode.
"""

import asyncio
import contextlib
import dataclasses
import logging
import os
import pathlib
import shutil
import time
from collections.abc import Mapping

from gpupack_agent.inventory import driver_files
from gpupack_agent.inventory.driver_root import DriverSearch
from gpupack_agent.mps.folder import MpsFolder
from gpupack_agent.mps.log import LogReader

log = logging.getLogger(__name__)

ROUND_SECONDS = 0.5
QUIT_SECONDS = 5.0
LOG_SECONDS = 1.0
RESTART_SECONDS = 5.0
"""The time until a daemon that ended by itself is started again."""

SEARCH_SECONDS = 60.0
"""The time until a host without MPS programs is searched again."""

CONTROL = "nvidia-cuda-mps-control"


@dataclasses.dataclass(slots=True)
class Daemon:
    """A daemon that was started, and the task that reads its log."""

    process: asyncio.subprocess.Process
    reading: asyncio.Task[None]


class Supervisor:
    """The supervisor, which starts and stops daemons as the folder requests.

    Args:
        folder: the folder with the requests of the agent.
        program: the host's nvidia-cuda-mps-control.
        libraries: a folder with only the host's driver libraries, because this process needs its
            own C library and not the host's; None: the host's root is this process's own.
    """

    def __init__(
        self, folder: MpsFolder, program: pathlib.Path, libraries: pathlib.Path | None
    ) -> None:
        self._folder, self._program, self._libraries = folder, program, libraries
        self._daemons: dict[str, Daemon] = {}
        self._ended_at: dict[str, float] = {}

    async def run(self) -> None:
        """Supervise until cancelled; then all daemons end."""
        self._folder.clear()
        try:
            while True:
                try:
                    self._folder.write_sign_of_life()
                    await self.round()
                except OSError as error:
                    # The daemons continue: the end of a daemon would end the work of its clients.
                    log.error("cannot start and stop daemons as requested: %s", error)  # noqa: TRY400 - the text suffices
                await asyncio.sleep(ROUND_SECONDS)
        finally:
            self._folder.remove_sign_of_life()
            await asyncio.gather(*(self._stop(uuid) for uuid in list(self._daemons)))

    async def round(self) -> None:
        """Start and stop daemons as requested, concurrently, so that no GPU delays another."""
        requested = self._folder.requested()
        await asyncio.gather(
            *(
                self._reconcile_or_log(uuid, requested=uuid in requested)
                for uuid in requested | self._daemons.keys()
            )
        )

    async def _reconcile_or_log(self, uuid: str, *, requested: bool) -> None:
        try:
            await self._reconcile(uuid, requested=requested)
        except OSError as error:
            log.error("GPU %s: %s", uuid, error)  # noqa: TRY400 - the text suffices
            self._ended_at[uuid] = time.monotonic()

    async def _reconcile(self, uuid: str, *, requested: bool) -> None:
        daemon = self._daemons.get(uuid)
        if daemon is None:
            if time.monotonic() - self._ended_at.get(uuid, -RESTART_SECONDS) >= RESTART_SECONDS:
                await self._start(uuid)
        elif daemon.process.returncode is not None:
            log.error("GPU %s: its daemon ended with %d", uuid, daemon.process.returncode)
            self._ended_at[uuid] = time.monotonic()
            await self._forget(uuid)
        elif not requested:
            self._folder.mark_ending(uuid)
            if uuid in self._folder.requested():
                self._folder.unmark_ending(uuid)
            else:
                await self._stop(uuid)

    async def _start(self, uuid: str) -> None:
        pipe = self._folder.pipe(uuid)
        shutil.rmtree(pipe, ignore_errors=True)
        pipe.mkdir(parents=True)
        process = await asyncio.create_subprocess_exec(
            str(self._program),
            "-f",
            "-multiuser-server",
            env=self._environment(uuid),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        self._daemons[uuid] = Daemon(process, asyncio.create_task(self._read(uuid, process)))
        log.info("GPU %s: daemon %d", uuid, process.pid)

    async def _read(self, uuid: str, process: asyncio.subprocess.Process) -> None:
        reader, stream = LogReader(), process.stdout
        while stream and (line := await _read_line(stream)):
            text = line.decode(errors="replace").rstrip()
            log.debug("GPU %s: %s", uuid, text)
            if fault := reader.read(text, now=time.time()):
                log.warning("GPU %s: clients %s failed together", uuid, fault.clients)
                with contextlib.suppress(OSError):
                    self._folder.record(uuid, fault)

    async def _stop(self, uuid: str) -> None:
        """Stop a daemon; its remaining clients fail. A daemon that does not quit is killed."""
        self._folder.mark_ending(uuid)
        process = self._daemons[uuid].process
        try:
            async with asyncio.timeout(QUIT_SECONDS):
                await self._send_quit(uuid)
                await process.wait()
        except (TimeoutError, OSError) as error:
            log.warning("GPU %s: killing its daemon, which did not stop: %r", uuid, error)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        await self._forget(uuid)
        log.info("GPU %s: its daemon has stopped", uuid)

    async def _send_quit(self, uuid: str) -> None:
        """Send `quit` with the control program, which does not wait for clients.

        Raises:
            OSError: the program cannot be started, such as while the driver is replaced.
        """
        control = await asyncio.create_subprocess_exec(
            str(self._program),
            env=self._environment(uuid),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            await control.communicate(b"quit\n")
        finally:
            with contextlib.suppress(ProcessLookupError):
                control.kill()

    async def _forget(self, uuid: str) -> None:
        """Remove an ended daemon after reading the rest of its log.

        The read has a time limit, because the daemon's server may keep the pipe open.
        """
        self._folder.mark_ending(uuid)
        reading = self._daemons.pop(uuid).reading
        await asyncio.wait([reading], timeout=LOG_SECONDS)
        reading.cancel()
        shutil.rmtree(self._folder.pipe(uuid), ignore_errors=True)

    def _environment(self, uuid: str) -> Mapping[str, str]:
        pipe = str(self._folder.pipe(uuid))
        variables = {
            "CUDA_VISIBLE_DEVICES": uuid,
            "CUDA_MPS_PIPE_DIRECTORY": pipe,
            "CUDA_MPS_LOG_DIRECTORY": pipe,
            # The daemon starts the server in the same folder.
            "PATH": f"{self._program.parent}:{os.environ.get('PATH', '')}",
        }
        return variables | ({"LD_LIBRARY_PATH": str(self._libraries)} if self._libraries else {})


async def _read_line(stream: asyncio.StreamReader) -> bytes:
    """Return the next line; lines that are too long for the stream are skipped."""
    while True:
        with contextlib.suppress(ValueError):
            return await stream.readline()


async def serve(folder: MpsFolder, search: DriverSearch, libraries: pathlib.Path) -> None:
    """Supervise once the host has the driver's programs; until then it offers no limited shares.

    Args:
        folder: the folder with the requests of the agent.
        search: finds the host's driver.
        libraries: a folder to create, for links to the host's driver libraries.
    """
    while (found := search.find().program(CONTROL)) is None:
        log.warning(
            "cannot find %s below %s: this host has no limited shares",
            CONTROL,
            " and ".join(search.folders),
        )
        await asyncio.sleep(SEARCH_SECONDS)
    driver_files.create_device_nodes(search)
    await Supervisor(folder, found, link_libraries(search, libraries)).run()


def link_libraries(search: DriverSearch, into: pathlib.Path) -> pathlib.Path | None:
    """Create a folder with links to the host's driver libraries.

    None: the host's root is this process's own, so no folder is needed.
    """
    if search.host == pathlib.Path("/"):
        return None
    into.mkdir(parents=True, exist_ok=True)
    for name, path in search.find().libraries:
        (into / name).unlink(missing_ok=True)
        (into / name).symlink_to(path)
    return into
