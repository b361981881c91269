# SPDX-License-Identifier: Apache-2.0
"""The process that asks AMD's driver; see `prober`, which asks NVIDIA's, for why and how."""

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
"""AMD ships it with ROCm; an agent's image that is to ask has it, and libamd_smi.so."""

COMMAND = (sys.executable, "-m", "gpupack_agent.inventory.amd_prober")


def is_there() -> bool:
    """Whether this image has AMD's module."""
    return importlib.util.find_spec(MODULE) is not None


def serve(smi: Any, requests: BinaryIO, output: BinaryIO) -> None:
    """Answer until the requests end."""

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
    """`python -m gpupack_agent.inventory.amd_prober`."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    serve(importlib.import_module(MODULE), sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
