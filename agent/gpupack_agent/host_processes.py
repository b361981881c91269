# SPDX-License-Identifier: Apache-2.0
"""Which programs run on a host, by its /proc; those of pods are left out."""

import dataclasses
import pathlib
import re
from collections.abc import Collection
from typing import Final

from gpupack_agent.host_files import Root

MAX_PROCESSES: Final = 65536
OF_POD: Final = re.compile("kubepods|/pod[0-9a-f]{8}")
"""In a process' cgroups, however much of their path is seen from here."""
STARTED_BY_ROOT: Final = re.compile(r"^Uid:\t0\t", re.MULTILINE)
"""In a process' status, whose names cannot hold a newline. The real UID counts: a program that is
setuid root keeps that of the user who started it, and has a command line of the user's choice."""


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """A program that runs.

    Attributes:
        name: the program's, without its folder.
        words: its command line.
        by_root: root started it. Any other user may give a program any name and command line.
    """

    name: str
    words: tuple[str, ...]
    by_root: bool


def commands(root: Root, programs: Collection[str]) -> tuple[Command, ...]:
    """The processes that run one of these programs, in order of their numbers."""
    numbers = sorted(int(name) for name in root.names("/proc") if name.isdecimal())
    found = []
    for number in numbers[:MAX_PROCESSES]:
        text = root.text(f"/proc/{number}/cmdline") or ""
        words = tuple(text.rstrip("\0 ").split("\0"))
        # A program may write its title there, as one word: `/usr/local/bin/k3s server`.
        name = pathlib.PurePosixPath(words[0].partition(" ")[0]).name
        if name in programs and not OF_POD.search(root.text(f"/proc/{number}/cgroup") or ""):
            status = root.text(f"/proc/{number}/status") or ""
            found.append(Command(name, words, bool(STARTED_BY_ROOT.search(status))))
    return tuple(found)


def option(words: tuple[str, ...], *names: str) -> str:
    """The value of an option on a command line, the last one; empty: it is not there."""
    found = ""
    for place, word in enumerate(words):
        for name in names:
            if word.startswith(f"{name}="):
                found = word.removeprefix(f"{name}=")
            elif word == name and place + 1 < len(words):
                found = words[place + 1]
    return found
