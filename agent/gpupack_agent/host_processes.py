# SPDX-License-Identifier: Apache-2.0
"""The programs that run on a host, from its /proc, without those of pods."""

import dataclasses
import pathlib
import re
from collections.abc import Collection
from typing import Final

from gpupack_agent.host_files import Root

MAX_PROCESSES: Final = 65536
POD_CGROUP: Final = re.compile("kubepods|/pod[0-9a-f]{8}")
"""A part of the cgroup path of a pod's process, also where its beginning is not visible."""
STARTED_BY_ROOT: Final = re.compile(r"^Uid:\t0\t", re.MULTILINE)
"""A line of the status of a process that root started; names in a status contain no newline.

The real UID counts: a setuid-root program keeps the real UID of the user that started it, and that
user chose its command line."""


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """A running program.

    Attributes:
        name: name of the program, without its folder.
        arguments: its command line.
        by_root: whether root started it. Any other user may give a program any name and command
            line.
    """

    name: str
    arguments: tuple[str, ...]
    by_root: bool


def commands(root: Root, programs: Collection[str]) -> tuple[Command, ...]:
    """Return the processes that run one of these programs, in order of their PIDs."""
    numbers = sorted(int(name) for name in root.names("/proc") if name.isdecimal())
    found = []
    for number in numbers[:MAX_PROCESSES]:
        text = root.text(f"/proc/{number}/cmdline") or ""
        arguments = tuple(text.rstrip("\0 ").split("\0"))
        # A program may write its title here, as one word: `/usr/local/bin/k3s server`.
        name = pathlib.PurePosixPath(arguments[0].partition(" ")[0]).name
        if name in programs and not POD_CGROUP.search(root.text(f"/proc/{number}/cgroup") or ""):
            status = root.text(f"/proc/{number}/status") or ""
            found.append(Command(name, arguments, bool(STARTED_BY_ROOT.search(status))))
    return tuple(found)


def option(arguments: tuple[str, ...], *names: str) -> str:
    """Return the last value of an option on a command line; empty: the option is missing."""
    found = ""
    for place, word in enumerate(arguments):
        for name in names:
            if word.startswith(f"{name}="):
                found = word.removeprefix(f"{name}=")
            elif word == name and place + 1 < len(arguments):
                found = arguments[place + 1]
    return found
