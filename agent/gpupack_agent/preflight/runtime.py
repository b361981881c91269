# SPDX-License-Identifier: Apache-2.0
"""What a container runtime's configuration files say of CDI and of its runtimes.

containerd: https://github.com/containerd/containerd/blob/main/docs/cri/config.md
CRI-O: https://github.com/cri-o/cri-o/blob/main/docs/crio.conf.5.md
"""

import dataclasses
import fnmatch
import pathlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from gpupack_agent.preflight.files import Root

Kind = Literal["containerd", "cri-o", ""]

CONTAINERD_CONFIG: Final = "/etc/containerd/config.toml"
CRIO_CONFIG: Final = "/etc/crio/crio.conf"
CRIO_FOLDERS: Final = ("/usr/share/crio/crio.conf.d", "/etc/crio/crio.conf.d")
CDI_FOLDERS: Final = ("/etc/cdi", "/var/run/cdi")
"""The defaults of both."""

BINARIES: Final = ("/usr/bin/containerd", "/usr/local/bin/containerd")
MODULE: Final = re.compile(
    rb"github\.com/containerd/containerd(?:/v(\d+))?\t(v?[0-9][^\s]*|\(devel\))"
)
"""A Go program names its modules and their versions, separated by tabs (go version -m)."""

MOST_FILES: Final = 64
"""That are read because another one imports them."""

_SECTIONS: Final = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri")
"""Of containerd 2's configuration and of earlier ones."""

CDI_BY_DEFAULT_SINCE: Final = 2
"""containerd's major version."""


@dataclasses.dataclass(frozen=True, slots=True)
class Runtime:
    """One container runtime.

    Attributes:
        kind: which; empty: none was found.
        major: its major version, where known.
        config: its configuration file; it may be missing.
        cdi: whether CDI is on; None: not known.
        cdi_folders: where it looks for CDI specs.
        default_runtime: what runs containers that name none.
        systemd_cgroups: whether systemd makes the cgroups; None: not said.
        problems: files that cannot be read, and why.
    """

    kind: Kind = ""
    major: int | None = None
    config: str = ""
    cdi: bool | None = None
    cdi_folders: tuple[str, ...] = CDI_FOLDERS
    default_runtime: str = ""
    systemd_cgroups: bool | None = None
    problems: tuple[str, ...] = ()


def read_runtime(root: Root, commands: Mapping[str, tuple[str, ...]]) -> Runtime:
    """Read the configuration of the runtime that runs, or else of the one that is installed.

    Args:
        root: the host's.
        commands: command lines of what runs, by the program's name.
    """
    if "crio" in commands or (
        "containerd" not in commands and root.exists(CRIO_CONFIG) and not _has_containerd(root)
    ):
        return _crio(root, commands.get("crio", ()))
    if "containerd" in commands or _has_containerd(root):
        return _containerd(root, commands.get("containerd", ()))
    return Runtime()


def option(command: tuple[str, ...], *names: str) -> str:
    """The value of an option on a command line; empty: it is not there."""
    for place, word in enumerate(command):
        for name in names:
            if word.startswith(f"{name}="):
                return word.removeprefix(f"{name}=")
            if word == name and place + 1 < len(command):
                return command[place + 1]
    return ""


def _has_containerd(root: Root) -> bool:
    return any(map(root.exists, (CONTAINERD_CONFIG, *BINARIES)))


def _containerd(root: Root, command: tuple[str, ...]) -> Runtime:
    config = option(command, "--config", "-c") or CONTAINERD_CONFIG
    tables, problems = _tables(root, config)
    sections = [
        section
        for table in tables
        for name in _SECTIONS
        if (section := _table(_table(table, "plugins"), name))
    ]
    version = max((v for t in tables if isinstance(v := t.get("version"), int)), default=0)
    major = _major(root, (*command[:1], *BINARIES), at_least=version - 1)
    said = _last(sections, "enable_cdi", bool)
    default = None if major is None else major >= CDI_BY_DEFAULT_SINCE
    containers = [_table(section, "containerd") for section in sections]
    name = _last(containers, "default_runtime_name", str) or "runc"
    runtimes = [_table(_table(each, "runtimes"), name) for each in containers]
    return Runtime(
        kind="containerd",
        major=major,
        config=config,
        cdi=default if said is None else said,
        cdi_folders=_texts(_last(sections, "cdi_spec_dirs", list)) or CDI_FOLDERS,
        default_runtime=name,
        systemd_cgroups=_last([_table(r, "options") for r in runtimes], "SystemdCgroup", bool),
        problems=problems,
    )


def _major(root: Root, programs: tuple[str, ...], *, at_least: int) -> int | None:
    """By what the program says of itself, else by its configuration: version 3 came with 2.0."""
    for program in programs:
        found = root.search(program, MODULE) if program.startswith("/") else None
        if found:
            return int(found.group(1) or 1)
    return CDI_BY_DEFAULT_SINCE if at_least >= CDI_BY_DEFAULT_SINCE else None


def _crio(root: Root, command: tuple[str, ...]) -> Runtime:
    config = option(command, "--config", "-c") or CRIO_CONFIG
    names = [config]
    for folder in CRIO_FOLDERS:
        names += [f"{folder}/{name}" for name in root.names(folder)]
    tables, problems = list[Mapping[str, Any]](), list[str]()
    for name in names[:MOST_FILES]:
        table, problem = _parsed(root, name)
        tables += [_table(_table(table, "crio"), "runtime")]
        problems += [problem] if problem else []
    return Runtime(
        kind="cri-o",
        config=config,
        # On, and not to be turned off, since 1.23 (2021); cdi_spec_dirs empty turns it off.
        cdi=_last(tables, "cdi_spec_dirs", list) != [],
        cdi_folders=_texts(_last(tables, "cdi_spec_dirs", list)) or CDI_FOLDERS,
        default_runtime=_last(tables, "default_runtime", str) or "",
        systemd_cgroups=(_last(tables, "cgroup_manager", str) or "systemd") == "systemd",
        problems=tuple(problems),
    )


def _tables(root: Root, config: str) -> tuple[list[Mapping[str, Any]], tuple[str, ...]]:
    """A file and those that it imports, each once, in the order in which they count."""
    tables, problems, seen = list[Mapping[str, Any]](), list[str](), set[str]()
    pending = [config]
    while pending and len(seen) < MOST_FILES:
        name = pending.pop(0)
        if name in seen:
            continue
        seen.add(name)
        table, problem = _parsed(root, name)
        problems += [problem] if problem else []
        tables.append(table)
        pending += _imports(root, name, table)
    return tables, tuple(problems)


def _imports(root: Root, name: str, table: Mapping[str, Any]) -> Iterator[str]:
    imports = table.get("imports")
    folder = pathlib.PurePosixPath(name).parent
    for pattern in _texts(imports if isinstance(imports, list) else []):
        path = folder / pattern
        for each in root.names(str(path.parent)):
            if fnmatch.fnmatchcase(each, path.name):
                yield str(path.parent / each)


def _parsed(root: Root, name: str) -> tuple[Mapping[str, Any], str]:
    """What stands in a TOML file, or why it cannot be read; one that is missing says nothing."""
    if not root.exists(name):
        return {}, ""
    text = root.text(name)
    if text is None:
        return {}, f"{name} cannot be read"
    try:
        return tomllib.loads(text), ""
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        return {}, f"{name} is no TOML: {error}"


def _table(table: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = table.get(name)
    return found if isinstance(found, dict) else {}


def _last(tables: list[Mapping[str, Any]], name: str, kind: type) -> Any:
    """What the last of the tables says that says it, in the right type."""
    found = [value for each in tables if isinstance(value := each.get(name), kind)]
    return found[-1] if found else None


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(each for each in values or () if isinstance(each, str))
