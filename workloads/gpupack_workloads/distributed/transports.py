# SPDX-License-Identifier: Apache-2.0
"""Reads the transport between the ranks of a gang from NCCL's log.

For each connection that it makes, NCCL writes a line, of which these are the ends:

    Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read            NVLink or PCIe, GPU to GPU
    Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct         host memory
    Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0    TCP
    Channel 00/0 : 1[0] -> 0[0] [send] via NET/IB/0/GDRDMA    RDMA

They are read from a file, to which NCCL writes instead of standard output. Where the user has
requested NCCL's log, it is left alone, and the transport is unknown.
"""

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Final

LOG_VARIABLES: Final = ("NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS")
TCP: Final = "tcp"
"""What gloo uses between all ranks."""
UNKNOWN: Final = ""
SLOWEST_FIRST: Final = ("NET/Socket", "NET/", "SHM", "P2P/")
MAX_LOG_BYTES: Final = 2**24
MAX_CHARACTERS: Final = 64
_CONNECTION = re.compile(r" Channel \d+(?:/\d+)? ?: .* via ([A-Z][^\r\n]*)")


class Log:
    """NCCL's log of this process."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def transports(self) -> str:
        """Return the transports of this process, the slowest first, joined by commas."""
        try:
            with self._path.open("rb") as file:
                text = file.read(MAX_LOG_BYTES).decode(errors="replace")
        except OSError:
            return UNKNOWN
        return transports_of(text)


@contextlib.contextmanager
def logged(backend: str, environ: MutableMapping[str, str] = os.environ) -> Iterator[Log | None]:
    """Have NCCL log its connections to a file; no log where it is not ours to set.

    NCCL reads the variables when the first group of this process begins, and holds the file open
    until the process ends. They are removed after the context, for processes that this one starts.
    """
    if backend != "nccl" or any(environ.get(name) for name in LOG_VARIABLES):
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="gpupack-nccl-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "log"
        values = ("INFO", str(path), "INIT")
        ours = dict(zip(LOG_VARIABLES, values, strict=True))
        environ.update(ours)
        try:
            yield Log(path)
        finally:
            for name in ours:
                environ.pop(name, None)


def transports_of(log: str) -> str:
    """Return the transports that a log of NCCL's names, the slowest first, joined by commas."""
    found = {_kind(match.group(1)) for match in _CONNECTION.finditer(log)}
    joined = ""
    for each in sorted(found, key=lambda kind: (_rank(kind), kind)):
        longer = f"{joined},{each}" if joined else each
        if len(longer) <= MAX_CHARACTERS:
            joined = longer
    return joined


def _kind(said: str) -> str:
    """Return `P2P/CUMEM` of `P2P/CUMEM/read`, and `SHM` of `SHM/direct/direct`."""
    first, *rest = said.strip().split("/")
    return first if first == "SHM" or not rest else f"{first}/{rest[0].split('(')[0]}"


def _rank(kind: str) -> int:
    found = (place for place, start in enumerate(SLOWEST_FIRST) if kind.startswith(start))
    return next(found, len(SLOWEST_FIRST))
