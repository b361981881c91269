# SPDX-License-Identifier: Apache-2.0
"""The process that queries AMD's driver; `prober`, the one for NVIDIA's, explains why and how."""

import importlib
import importlib.util
import logging
import sys
from typing import Any, BinaryIO

from gpupack_agent.errors import InventoryUnavailable
from gpupack_agent.inventory.amd import AmdReader
from gpupack_agent.inventory.messages import (
    REQUESTS,
    Found,
    Reading,
    Reply,
    Scan,
    Unavailable,
    line,
)

MODULE = "amdsmi"
"""AMD's module, which is part of ROCm. An agent's image needs it and libamd_smi.so to query."""

COMMAND = (sys.executable, "-m", "gpupack_agent.inventory.amd_prober")


def is_installed() -> bool:
    """Tell whether this image has AMD's module."""
    return importlib.util.find_spec(MODULE) is not None


def serve(smi: Any, requests: BinaryIO, output: BinaryIO) -> None:
    """Answer requests until they end."""

    def reply(message: Reply) -> None:
        output.write(line(message))
        output.flush()

    reader = AmdReader(smi, lambda index: reply(Reading(index)))
    for each in requests:
        if isinstance(REQUESTS.decode(each), Scan):
            try:
                reply(Found(reader.scan()))
            except InventoryUnavailable as error:
                reply(Unavailable(str(error)))


def main() -> None:
    """Run `python -m gpupack_agent.inventory.amd_prober`."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    serve(importlib.import_module(MODULE), sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
