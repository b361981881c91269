# SPDX-License-Identifier: Apache-2.0
"""A command line of mpirun as the program of each rank.

gpupack calls the image's mpirun itself, with the workers as hosts.
"""

import dataclasses
import re
import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

from gpupack_cli.convert.report import NotConverted, Report

PROGRAMS: Final = frozenset({"mpirun", "mpiexec", "mpiexec.hydra"})
SHELLS: Final = frozenset({"sh", "bash", "dash"})

RANKS: Final = frozenset({"np", "n", "c"})
RANKS_OF_NODE: Final = frozenset({"npernode", "N", "ppn", "perhost"})
PAIRS: Final = frozenset({"mca", "gmca", "pmca", "prtemca", "genv", "env"})
"""Options with two arguments."""
HOSTS: Final = frozenset({"H", "host", "hosts", "hostfile", "machinefile", "f", "prefix"})
BINDING: Final = frozenset({"bind-to", "map-by", "rank-by"})
FOLDER: Final = frozenset({"wdir", "wd"})
FLAGS: Final = frozenset(
    {
        "allow-run-as-root",
        "oversubscribe",
        "tag-output",
        "timestamp-output",
        "display-map",
        "display-allocation",
        "report-bindings",
        "genvall",
        "q",
        "quiet",
        "v",
        "verbose",
        "l",
    }
)
"""Options without an argument, which have no meaning in a GPUJob."""

DEFAULT_BINDING: Final = frozenset({"none", "slot", "core:overload-allowed"})
REMOTE_SHELL: Final = ("plm_rsh", "orte_keep", "oob_tcp_if")
"""Parameters of mpirun's connections to its hosts, which gpupack's launcher makes."""

BY_VARIABLE: Final = "set it by a variable of mpirun in the container's env, such as PRTE_MCA_…"
ADVICE: Final = (
    "gpupack calls mpirun itself; set the worker's command to the program of each rank, and "
    "distributed.backend to mpi"
)

_SHELL_WORDS: Final = re.compile(r"[;&|$`<>\n(){}*?]")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclasses.dataclass(frozen=True, slots=True)
class RankCommand:
    """What mpirun runs.

    Attributes:
        program: program and arguments of each rank.
        ranks: number of ranks; None: one for each slot.
        env: variables that the options set.
        folder: working directory; empty: the image's.
    """

    program: tuple[str, ...] = ()
    ranks: int | None = None
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    folder: str = ""


def is_mpirun(words: Sequence[str]) -> bool:
    """Tell whether a command line starts mpirun, directly or in a shell."""
    inner = _unwrapped(words)
    return bool(inner) and PurePosixPath(inner[0]).name in PROGRAMS


def rank_command(words: Sequence[str], report: Report, *, path: str) -> RankCommand:
    """Return the program of each rank.

    Raises:
        NotConverted: the command line is not understood.
    """
    inner = _unwrapped(words)
    if not inner or PurePosixPath(inner[0]).name not in PROGRAMS:
        raise NotConverted(path, " ".join(words), f"this is no plain call of mpirun; {ADVICE}")
    found = RankCommand()
    rest = list(inner[1:])
    while rest and rest[0].startswith("-"):
        option = rest.pop(0).lstrip("-")
        if option not in FLAGS:
            arguments = [rest.pop(0) for _ in range(2 if option in PAIRS else 1) if rest]
            found = _with_option(found, option, arguments, report, path=path)
    if not rest:
        raise NotConverted(path, " ".join(words), f"mpirun has no program; {ADVICE}")
    return dataclasses.replace(found, program=tuple(rest))


def _with_option(
    found: RankCommand, option: str, arguments: list[str], report: Report, *, path: str
) -> RankCommand:
    text = " ".join(arguments)
    if option in RANKS:
        return dataclasses.replace(found, ranks=int(text) if text.isdecimal() else None)
    if option in FOLDER:
        return dataclasses.replace(found, folder=text)
    if option in PAIRS or option == "x":
        return dataclasses.replace(found, env=found.env | _variables(option, arguments))
    if option in BINDING:
        if text not in DEFAULT_BINDING:
            report.dropped(f"{path} --{option}", text, BY_VARIABLE)
    elif option not in HOSTS | RANKS_OF_NODE:
        raise NotConverted(
            path, f"-{option}", f"an option of mpirun that is not known here; {ADVICE}"
        )
    return found


def _unwrapped(words: Sequence[str]) -> list[str]:
    """Return the words of a command line, also where a shell has one simple command."""
    is_script = (
        len(words) == 3  # noqa: PLR2004 - sh -c SCRIPT
        and PurePosixPath(words[0]).name in SHELLS
        and re.fullmatch(r"-[a-z]*c", words[1]) is not None
    )
    if not is_script:
        return list(words)
    script = words[2].replace("\\\n", " ").strip().rstrip(";")
    if _SHELL_WORDS.search(script):
        return list(words)
    try:
        return shlex.split(script.removeprefix("exec "))
    except ValueError:
        return list(words)


def _variables(option: str, arguments: list[str]) -> dict[str, str]:
    """Return the variables that an option sets; ranks have those of their worker already."""
    if option == "x":
        name, equals, value = " ".join(arguments).partition("=")
        return {name: value} if equals and _VARIABLE.fullmatch(name) else {}
    name, value = [*arguments, "", ""][:2]
    if option in {"genv", "env"}:
        return {name: value} if _VARIABLE.fullmatch(name) else {}
    if name.startswith(REMOTE_SHELL) or not _VARIABLE.fullmatch(name):
        return {}
    return {f"{'PRTE' if option == 'prtemca' else 'OMPI'}_MCA_{name}": value}
