# SPDX-License-Identifier: Apache-2.0
"""The process's own streams, with an end of their own where nothing can be written any more.

The standard library raises BrokenPipeError, which looks like one of a socket, and which click and
rich each handle in their own way before a command sees it. Text that the encoding of a
stream does not have never ends a command: our own signs have a counterpart in ASCII, and the rest
is escaped.
"""

import codecs
import io
import os
from pathlib import Path
from typing import Any, Final, TextIO

from gpupack_terminal.screens import screen

ERRORS: Final = "gpupack_terminal"
"""Name of the error handler by which text is encoded."""

COUNTERPARTS: Final = {
    "…": "~",
    "█": "#",
    "▄": "+",
    "·": ".",
    "\N{MULTIPLICATION SIGN}": "x",
    "±": "~",
    "°": " ",
    "\N{EN DASH}": "-",
    "—": "-",
    "\N{MINUS SIGN}": "-",
    "«": '"',
    "»": '"',
    "≥": ">",
    "≤": "<",
    "─": "-",
    "━": "-",
}
"""Of what gpupack draws itself: one character for one, so that columns stay in line."""


class OutputEnded(Exception):
    """Nothing more can be written to a stream of the process."""


class PipeClosed(OutputEnded):
    """The reader of a pipe has gone, as `head` does when it has its lines."""


class CannotWrite(OutputEnded):
    """The stream leads to something that takes no more, such as a full disk."""


class GuardedStream(io.RawIOBase):
    """Writes to a file descriptor; after the first failure it swallows what comes.

    Args:
        number: file descriptor.
        title: as an error names it.
    """

    def __init__(self, number: int, title: str) -> None:
        super().__init__()
        self._file = io.FileIO(number, "wb", closefd=False)
        self._title = title
        self._ended = False

    def writable(self) -> bool:
        """Of a stream that is written."""
        return True

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._file.isatty()

    def fileno(self) -> int:
        """Its file descriptor."""
        return self._file.fileno()

    def write(self, data: Any) -> int | None:
        """Write some of the bytes.

        Raises:
            PipeClosed: no process reads the pipe.
            CannotWrite: the stream takes no more.
        """
        view = memoryview(data)
        if self._ended:
            return view.nbytes
        try:
            return self._file.write(view)
        except BrokenPipeError as error:
            self._ended = True
            raise PipeClosed(f"{self._title} is a pipe that no process reads") from error
        except OSError as error:
            self._ended = True
            raise CannotWrite(f"{self._title} cannot be written: {error.strerror}") from error


def guard(stream: TextIO | None, number: int, title: str) -> TextIO:
    """The stream that takes the place of one of the process; of one that was closed, none."""
    if stream is None:
        return Path(os.devnull).open("w", encoding="utf-8")
    shown = screen(stream)
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(GuardedStream(number, title)),
        encoding=shown.encoding,
        errors=ERRORS,
        line_buffering=shown.terminal or number == STDERR,
    )


STDOUT: Final = 1
STDERR: Final = 2


def _encoded(error: UnicodeError) -> tuple[str, int]:
    """What stands for characters that an encoding does not have."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(COUNTERPARTS.get(each) or _escaped(each) for each in text), error.end


def _escaped(character: str) -> str:
    return character.encode("ascii", "backslashreplace").decode("ascii")


codecs.register_error(ERRORS, _encoded)
