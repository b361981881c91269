# SPDX-License-Identifier: Apache-2.0
"""Reading of files as they are published: plain, or compressed by gzip, bzip2 or xz.

The first bytes of a file determine its format, never its name.
"""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Final

from gpupack_simulator.inputs.faults import Faults

UNREADABLE: Final = (OSError, EOFError, zlib.error, lzma.LZMAError)
"""Errors of a file that cannot be read, or whose compressed data is damaged."""

_OPENERS: Final[dict[bytes, Callable[[Path], Any]]] = {
    b"\x1f\x8b": gzip.GzipFile,
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
}
_OTHERS: Final = {
    b"PK\x03\x04": "a zip archive",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
    b"PAR1": "a Parquet file",
}
_LONGEST_MAGIC: Final = 6


def open_unpacked(path: Path, faults: Faults) -> IO[bytes]:
    """Open a file for reading, unpacked.

    Raises:
        InvalidInput: it cannot be opened, or is of a format that is not read.
    """
    try:
        with path.open("rb") as file:
            start = file.read(_LONGEST_MAGIC)
        opener = next((open_ for magic, open_ in _OPENERS.items() if start.startswith(magic)), None)
        opened: IO[bytes] = path.open("rb") if opener is None else opener(path)
    except OSError as error:
        raise unreadable(error, faults) from error
    for magic, what in _OTHERS.items():
        if start.startswith(magic):
            opened.close()
            raise faults.fatal(f"is {what}; unpack it into a text file first")
    return opened


def unreadable(error: Exception, faults: Faults) -> Exception:
    """Return the error that says why a file cannot be read; the caller raises it."""
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return faults.fatal(f"cannot be read: {why}")


def read_text(path: Path, faults: Faults) -> str:
    """Read a file of UTF-8 text, unpacked.

    Raises:
        InvalidInput: it cannot be read, or is not UTF-8 text.
    """
    try:
        with open_unpacked(path, faults) as file:
            text = file.read().decode("utf-8-sig")
    except UNREADABLE as error:
        raise unreadable(error, faults) from error
    except UnicodeDecodeError as error:
        raise faults.fatal(f"is not UTF-8 text: byte {error.start} is {error.reason}") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")
