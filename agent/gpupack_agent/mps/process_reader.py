# SPDX-License-Identifier: Apache-2.0
"""The list of processes that use a GPU, read in a separate process, because a driver call can hang.

The process runs while pods hold limited shares. One that does not answer is killed. No other one
starts until it has ended, so there are never two.
"""

import asyncio
import contextlib
import pathlib
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO

import msgspec

from gpupack_agent.errors import InventoryUnavailable
from gpupack_agent.inventory.driver_root import DriverSearch
from gpupack_agent.inventory.nvml import driver_too_old, open_nvml
from gpupack_agent.mps.processes import DeviceProcess, read

END_SECONDS = 0.5
LINE_BYTES = 4 << 20
"""The largest size of one answer: about 40,000 processes, more than a host's GPUs have memory for.
"""

_REPLIES = msgspec.json.Decoder(tuple[DeviceProcess, ...] | str)
_REQUESTS = msgspec.json.Decoder(tuple[str, ...])


def command(search: DriverSearch) -> tuple[str, ...]:
    """Return the command that starts the process."""
    where = (str(search.host), search.setting)
    return (sys.executable, "-m", "gpupack_agent.mps.process_reader", *where)


class ProcessReader:
    """The process that lists processes, started at the first request.

    Args:
        command: the command of the process.
        timeout_seconds: the time within which it must answer.
    """

    def __init__(self, command: Sequence[str], *, timeout_seconds: float) -> None:
        self._command, self._seconds = command, timeout_seconds
        self._process: Process | None = None
        self._killed: Process | None = None

    async def read(self, uuids: Iterable[str]) -> tuple[DeviceProcess, ...]:
        """Return the processes that use these GPUs.

        Raises:
            InventoryUnavailable: the driver does not list them.
        """
        try:
            async with asyncio.timeout(self._seconds):
                answer = await self._request(sorted(uuids))
        except (TimeoutError, OSError, ValueError, msgspec.MsgspecError) as error:
            await self.stop()
            raise InventoryUnavailable(f"{type(error).__name__} {error}".strip()) from error
        if isinstance(answer, str):
            raise InventoryUnavailable(answer)
        return answer

    async def stop(self) -> None:
        """End the process; the next request starts another one."""
        if self._process is None:
            return
        self._killed, self._process = self._process, None
        if self._killed.stdin is not None:
            self._killed.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            self._killed.kill()
        # A process that does not hang in the kernel ends at once.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await self._killed.communicate()

    async def _request(self, uuids: list[str]) -> tuple[DeviceProcess, ...] | str:
        process = self._process or await self._start()
        assert process.stdin is not None  # noqa: S101 - for the type checker
        assert process.stdout is not None  # noqa: S101 - likewise
        process.stdin.write(msgspec.json.encode(uuids) + b"\n")
        await process.stdin.drain()
        answer: tuple[DeviceProcess, ...] | str = _REPLIES.decode(await process.stdout.readline())
        return answer

    async def _start(self) -> Process:
        if self._killed is not None and self._killed.returncode is None:
            raise OSError("a call to the driver hangs and cannot be ended")
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, stdout=PIPE, limit=LINE_BYTES
        )
        return self._process


def serve(nvml: Any, requests: BinaryIO, output: BinaryIO) -> None:
    """Answer requests until they end, each with processes or with the reason for an error."""
    for each in requests:
        reply: tuple[DeviceProcess, ...] | str
        try:
            reply = read(nvml, _REQUESTS.decode(each))
        except nvml.NVMLError as error:
            reply = str(error)
        except nvml.NVMLLibraryMismatchError:
            reply = driver_too_old(nvml)
        output.write(msgspec.json.encode(reply) + b"\n")
        output.flush()


def main() -> None:
    """Run `python -m gpupack_agent.mps.process_reader HOST_ROOT DRIVER_ROOT`."""
    import pynvml  # noqa: PLC0415 - tests use a substitute

    host_root, driver_root = sys.argv[1:]
    open_nvml(pynvml, DriverSearch(pathlib.Path(host_root), driver_root))
    serve(pynvml, sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
