# SPDX-License-Identifier: Apache-2.0
"""The process that queries the driver, so that a call that does not return stops nothing else.

It reads requests from standard input and answers on standard output, one after the other. Before
the calls about a GPU it writes the index of that GPU. It ends when its standard input ends, and so
with the agent.
"""

import argparse
import logging
import pathlib
import sys
import threading
from typing import Any, BinaryIO

from gpupack_agent.errors import InventoryUnavailable
from gpupack_agent.inventory import driver_files, mig_partitioning
from gpupack_agent.inventory.base import Findings
from gpupack_agent.inventory.driver_root import AUTO, DriverSearch
from gpupack_agent.inventory.layout import Place
from gpupack_agent.inventory.messages import (
    REQUESTS,
    Done,
    Event,
    Forget,
    Found,
    Partition,
    Reading,
    Reply,
    Scan,
    Unavailable,
    line,
)
from gpupack_agent.inventory.nvml import NvmlReader, driver_too_old, open_nvml
from gpupack_agent.inventory.reporting_nvml import ReportingNvml
from gpupack_agent.inventory.xids import XidWatcher


class Prober:
    """The server of one agent's requests.

    Args:
        nvml: the module `pynvml`, or an object with its functions.
        search: finds the host's driver.
        output: the stream to which replies are written.
    """

    def __init__(self, nvml: Any, search: DriverSearch, output: BinaryIO) -> None:
        self._search, self._output = search, output
        self._lock = threading.Lock()
        self._nvml = ReportingNvml(nvml, lambda index: self._reply(Reading(index)))
        self._xids = XidWatcher(self._nvml, notify=lambda: self._reply(Event()))
        self._reader: NvmlReader | None = None

    def serve(self, requests: BinaryIO) -> None:
        """Answer requests until they end."""
        for each in requests:
            match REQUESTS.decode(each):
                case Scan(skip=skip):
                    self._reply(self._scan(skip))
                case Forget():
                    self._xids.forget()
                case Partition(uuid=uuid, places=places):
                    self._reply(self._partition(uuid, places))

    def _scan(self, skip: tuple[int, ...]) -> Reply:
        self._nvml.start_request()
        try:
            if self._reader is None:
                open_nvml(self._nvml, self._search)
                self._reader = NvmlReader(self._nvml, self._xids, host_root=self._search.host)
            findings = self._reader.scan(skip)
        except InventoryUnavailable as error:
            if driver_files.has_nvidia_gpu(self._search.host) is False:
                # The node has another vendor's GPUs, or none.
                return Found(Findings(devices=()))
            return Unavailable(str(error), error.reason)
        except self._nvml.NVMLLibraryMismatchError:
            return Unavailable(driver_too_old(self._nvml))
        return Found(findings)

    def _partition(self, uuid: str, places: tuple[Place, ...]) -> Reply:
        self._nvml.start_request()
        try:
            mig_partitioning.partition(
                self._nvml, self._nvml.nvmlDeviceGetHandleByUUID(uuid), places
            )
        except InventoryUnavailable as error:
            return Unavailable(str(error))
        except self._nvml.NVMLError as error:
            return Unavailable(f"NVML: {error}")
        except self._nvml.NVMLLibraryMismatchError:
            return Unavailable(driver_too_old(self._nvml))
        return Done()

    def _reply(self, reply: Reply) -> None:
        """Write a reply, under a lock, because the thread that waits for events writes, too."""
        with self._lock:
            self._output.write(line(reply))
            self._output.flush()


def main() -> None:
    """Run `python -m gpupack_agent.inventory.prober`."""
    import pynvml  # noqa: PLC0415 - tests use recordings instead

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host-root", type=pathlib.Path, required=True)
    parser.add_argument("--driver-root", default=AUTO)
    arguments = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    search = DriverSearch(arguments.host_root, arguments.driver_root)
    Prober(pynvml, search, sys.stdout.buffer).serve(sys.stdin.buffer)


if __name__ == "__main__":
    main()
