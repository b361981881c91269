# SPDX-License-Identifier: Apache-2.0
"""A container runtime's configuration: CDI and its runtimes, from its files.

containerd: https://github.com/containerd/containerd/blob/main/docs/cri/config.md
CRI-O: https://github.com/cri-o/cri-o/blob/main/docs/crio.conf.5.md
"""

import dataclasses
import fnmatch
import pathlib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from gpupack_agent.host_files import MAX_BYTES, Root
from gpupack_agent.host_processes import Command, option
from gpupack_agent.kubelet_config import socket_path

Kind = Literal["containerd", "cri-o", ""]

CONTAINERD_CONFIG: Final = "/etc/containerd/config.toml"
CONTAINERD_SOCKET: Final = "/run/containerd/containerd.sock"
CRIO_SOCKET: Final = "/var/run/crio/crio.sock"
CRIO_CONFIG: Final = "/etc/crio/crio.conf"
CRIO_FOLDERS: Final = ("/usr/share/crio/crio.conf.d", "/etc/crio/crio.conf.d")
CDI_FOLDERS: Final = ("/etc/cdi", "/var/run/cdi")
"""The default CDI folders of both runtimes."""

BINARIES: Final = ("/usr/bin/containerd", "/usr/local/bin/containerd")
MODULE: Final = re.compile(
    rb"github\.com/containerd/containerd(?:/v(\d+))?\t(v?[0-9][^\s]*|\(devel\))"
)
"""The module and version in a Go program, which are separated by tabs (go version -m)."""

MAX_FILES: Final = 64
"""The largest number of configuration files that are read."""

_SECTIONS: Final = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri")
"""The sections in the configuration of containerd 2 and of earlier versions."""

CDI_BY_DEFAULT_SINCE: Final = 2
"""The first major version of containerd with CDI on by default."""


@dataclasses.dataclass(frozen=True, slots=True)
class Runtime:
    """One container runtime.

    Attributes:
        kind: the runtime; empty: none was found.
        major: its major version; None: not known.
        release: its full version, such as 1.7.27; empty: its program does not show it.
        config: its configuration file, which may be missing.
        cdi: whether CDI is on; None: not known.
        cdi_folders: the folders that it searches for CDI specs.
        default_runtime: the runtime of containers that name none.
        systemd_cgroups: whether systemd creates the cgroups; None: not configured.
        disabled: whether its CRI plugin is off, as in Docker's packages of containerd.
        unreadable: files whose permissions forbid reading.
        problems: files that are invalid, and why.
        endpoint: its socket; if it was not found, the socket that the kubelet uses.
        others: runtimes that run or are installed, if it is not known which one the kubelet uses,
            or if it uses none of them.
    """

    kind: Kind = ""
    major: int | None = None
    release: str = ""
    config: str = ""
    cdi: bool | None = None
    cdi_folders: tuple[str, ...] = CDI_FOLDERS
    default_runtime: str = ""
    systemd_cgroups: bool | None = None
    disabled: bool = False
    unreadable: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    endpoint: str = ""
    others: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class _Files:
    """The content of configuration files, in the order of increasing precedence."""

    tables: list[Mapping[str, Any]] = dataclasses.field(default_factory=list)
    unreadable: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)

    def add(self, root: Root, name: str) -> Mapping[str, Any]:
        """Read another file and return its content; a missing one is empty."""
        table = dict[str, Any]()
        if root.is_unreadable(name):
            self.unreadable.append(name)
        elif root.exists(name):
            try:
                table = parse_toml(root.text(name))
            except ValueError as error:
                self.problems.append(f"{name} {error}")
        self.tables.append(table)
        return table

    @property
    def is_complete(self) -> bool:
        """Tell whether all files were read."""
        return not self.unreadable and not self.problems


def parse_toml(text: str | None) -> dict[str, Any]:
    """Parse a text that may be invalid TOML.

    Raises:
        ValueError: it is invalid; the message continues a sentence after the file's name.
    """
    if text is None:
        raise ValueError(f"is not a file of at most {MAX_BYTES >> 20} MiB")
    try:
        return tomllib.loads(text)
    # The parser lets other errors through: int() refuses a number with 5000 digits.
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not valid TOML: {error}") from error


def read_runtime(root: Root, running: Sequence[Command], endpoint: str | None) -> Runtime:
    """Read the configuration of the runtime that the kubelet uses.

    Args:
        root: the host's root.
        running: the running programs, including those of runtimes.
        endpoint: the socket that the kubelet uses; None: not known. Then the only running runtime
            counts, or else the installed one.
    """
    is_known = endpoint is not None
    found = tuple(_running_runtimes(root, running)) or tuple(
        _installed_runtimes(root, include_all=is_known)
    )
    if endpoint is not None:
        wanted = _resolved_socket(root, endpoint)
        matching = tuple(each for each in found if _resolved_socket(root, each.socket) == wanted)
        return matching[0].read() if matching else Runtime(endpoint=endpoint, others=_titles(found))
    if len(found) > 1:
        return Runtime(others=_titles(found))
    return found[0].read() if found else Runtime()


@dataclasses.dataclass(frozen=True, slots=True)
class _Candidate:
    """A runtime that may serve the kubelet, and its socket."""

    title: str
    socket: str
    read: Callable[[], Runtime]


def _titles(found: Sequence[_Candidate]) -> tuple[str, ...]:
    return tuple(f"{each.title} at {each.socket}" for each in found)


def _running_runtimes(root: Root, running: Sequence[Command]) -> Iterator[_Candidate]:
    """Iterate over the running runtimes that root started, each once: the kubelet uses no other."""
    for command in dict.fromkeys(each for each in running if each.by_root):
        if command.name == "containerd":
            yield _containerd_at(root, command.arguments)
        elif command.name == "crio":
            yield _crio_at(root, command.arguments)


def _installed_runtimes(root: Root, *, include_all: bool) -> Iterator[_Candidate]:
    has_containerd = _has_containerd(root)
    if has_containerd:
        yield _containerd_at(root, ())
    if root.exists(CRIO_CONFIG) and (include_all or not has_containerd):
        yield _crio_at(root, ())


def _containerd_at(root: Root, arguments: tuple[str, ...]) -> _Candidate:
    config = option(arguments, "--config", "-c") or CONTAINERD_CONFIG
    grpc = [_table(table, "grpc") for table in _with_imports(root, config).tables]
    socket = (
        option(arguments, "--address", "-a")
        or _last_value(grpc, "address", str)
        or CONTAINERD_SOCKET
    )
    return _Candidate("containerd", socket, lambda: _containerd(root, arguments, socket))


def _crio_at(root: Root, arguments: tuple[str, ...]) -> _Candidate:
    api = [_table(_table(table, "crio"), "api") for table in _crio_files(root, arguments).tables]
    socket = option(arguments, "--listen") or _last_value(api, "listen", str) or CRIO_SOCKET
    return _Candidate("CRI-O", socket, lambda: _crio(root, arguments, socket))


def _resolved_socket(root: Root, socket: str) -> str:
    """Return the resolved path of a socket, which links can give several, as /run and /var/run."""
    path = socket_path(socket)
    found = root.find(path)
    return path if found is None else f"/{found.relative_to(root.path)}"


def _has_containerd(root: Root) -> bool:
    return any(map(root.exists, (CONTAINERD_CONFIG, *BINARIES)))


def _containerd(root: Root, command: tuple[str, ...], socket: str) -> Runtime:
    config = option(command, "--config", "-c") or CONTAINERD_CONFIG
    files = _with_imports(root, config)
    version = max((v for t in files.tables if isinstance(v := t.get("version"), int)), default=0)
    major, release = _version(root, (*command[:1], *BINARIES), at_least=version - 1)
    sections = _sections(files.tables, major)
    configured = _last_value(sections, "enable_cdi", bool)
    default = None if major is None else major >= CDI_BY_DEFAULT_SINCE
    containers = [_table(section, "containerd") for section in sections]
    name = _last_value(containers, "default_runtime_name", str) or "runc"
    runtimes = [_table(_table(each, "runtimes"), name) for each in containers]
    disabled = {each for table in files.tables for each in _texts(table.get("disabled_plugins"))}
    return Runtime(
        kind="containerd",
        endpoint=socket,
        major=major,
        release=release,
        config=config,
        cdi=(default if configured is None else configured) if files.is_complete else None,
        cdi_folders=_texts(_last_value(sections, "cdi_spec_dirs", list)) or CDI_FOLDERS,
        default_runtime=name,
        systemd_cgroups=_last_value(
            [_table(r, "options") for r in runtimes], "SystemdCgroup", bool
        ),
        disabled=not disabled.isdisjoint({"cri", *_SECTIONS}),
        unreadable=tuple(files.unreadable),
        problems=tuple(files.problems),
    )


def _sections(tables: list[Mapping[str, Any]], major: int | None) -> list[Mapping[str, Any]]:
    """Return the CRI sections of the files.

    Before containerd 2.0 a section of a later file replaces the whole section of an earlier one.
    """
    sections = [
        _table(plugins, name)
        for table in tables
        for name in _SECTIONS
        if name in (plugins := _table(table, "plugins"))
    ]
    return sections[-1:] if major == 1 else sections


def _version(root: Root, programs: tuple[str, ...], *, at_least: int) -> tuple[int | None, str]:
    """Return containerd's major and full version from its program.

    Otherwise the major version comes from the version of the configuration: 3 came with 2.0.
    """
    for program in programs:
        found = root.search(program, MODULE) if program.startswith("/") else None
        if found:
            release = found.group(2).decode()
            return int(found.group(1) or 1), release.removeprefix("v") if release[0] == "v" else ""
    return (CDI_BY_DEFAULT_SINCE if at_least >= CDI_BY_DEFAULT_SINCE else None), ""


def _crio_files(root: Root, command: tuple[str, ...]) -> _Files:
    names = [option(command, "--config", "-c") or CRIO_CONFIG]
    for folder in CRIO_FOLDERS:
        names += [f"{folder}/{name}" for name in root.names(folder)]
    files = _Files()
    for name in names[:MAX_FILES]:
        files.add(root, name)
    return files


def _crio(root: Root, command: tuple[str, ...], socket: str) -> Runtime:
    files = _crio_files(root, command)
    tables = [_table(_table(table, "crio"), "runtime") for table in files.tables]
    return Runtime(
        kind="cri-o",
        endpoint=socket,
        config=option(command, "--config", "-c") or CRIO_CONFIG,
        # On since 1.23 (2021), with no option for it; only an empty cdi_spec_dirs turns it off.
        cdi=_last_value(tables, "cdi_spec_dirs", list) != [] if files.is_complete else None,
        cdi_folders=_texts(_last_value(tables, "cdi_spec_dirs", list)) or CDI_FOLDERS,
        default_runtime=_last_value(tables, "default_runtime", str) or "",
        systemd_cgroups=(_last_value(tables, "cgroup_manager", str) or "systemd") == "systemd",
        unreadable=tuple(files.unreadable),
        problems=tuple(files.problems),
    )


def _with_imports(root: Root, config: str) -> _Files:
    """Read a file and those that it imports, each once."""
    files, seen = _Files(), set[str]()
    pending = [config]
    while pending and len(seen) < MAX_FILES:
        name = pending.pop(0)
        if name not in seen:
            seen.add(name)
            pending += _imports(root, name, files.add(root, name))
    return files


def _imports(root: Root, name: str, table: Mapping[str, Any]) -> Iterator[str]:
    folder = pathlib.PurePosixPath(name).parent
    for pattern in _texts(table.get("imports")):
        path = folder / pattern
        for each in root.names(str(path.parent)):
            if fnmatch.fnmatchcase(each, path.name):
                yield str(path.parent / each)


def _table(table: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = table.get(name)
    return found if isinstance(found, dict) else {}


def _last_value(tables: list[Mapping[str, Any]], name: str, kind: type) -> Any:
    """Return the value in the last table that has one of the right type; None: none has it."""
    found = [value for each in tables if isinstance(value := each.get(name), kind)]
    return found[-1] if found else None


def _texts(values: Any) -> tuple[str, ...]:
    found = values if isinstance(values, list) else []
    return tuple(each for each in found if isinstance(each, str))
