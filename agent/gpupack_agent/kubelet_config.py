# SPDX-License-Identifier: Apache-2.0
"""The configuration of a node's kubelet; no other module reads it.

    settings (chart values kubelet.*)           ─┐  a setting counts,
    command line ─► drop-ins ─► configuration    ├► else the first of these with a value,
    defaults of Kubernetes                      ─┘  else the default

The command line, the configuration file (--config) and its drop-ins (--config-dir) are read under
the host's root, so no right at the API server or the kubelet is needed (docs/adr/0073). For a
kubelet inside another program (k3s, MicroK8s) that program's files are read.

The folder of device plugins is no part of it: every kubelet on Linux has it in the same place,
whatever its --root-dir is.
"""

import dataclasses
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

from gpupack_agent import host_processes
from gpupack_agent.host_files import Root
from gpupack_agent.host_processes import Command, option

ROOT_DIR: Final = "/var/lib/kubelet"
CGROUP_ROOT: Final = "/"
RUNTIME_ENDPOINT: Final = "/run/containerd/containerd.sock"
DEVICE_PLUGINS: Final = "/var/lib/kubelet/device-plugins"
"""pluginapi.DevicePluginPath, a constant of the kubelet's code."""

KUBEADM_CONFIG: Final = f"{ROOT_DIR}/config.yaml"
"""The file where kubeadm writes the configuration, even if the kubelet does not run yet."""

K3S_DROP_INS: Final = "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d"
K3S_CONFIG: Final = "/etc/rancher/k3s/config.yaml"
K3S_ENDPOINT: Final = "/run/k3s/containerd/containerd.sock"
MICROK8S_ARGUMENTS: Final = "/var/snap/microk8s/current/args/kubelet"
MICROK8S_VARIABLES: Final = {
    "SNAP_DATA": "/var/snap/microk8s/current",
    "SNAP_COMMON": "/var/snap/microk8s/common",
}

PROGRAMS: Final = ("kubelet", "k3s", "kubelite")
MAX_DROP_INS: Final = 64


@dataclasses.dataclass(frozen=True, slots=True)
class KubeletSettings:
    """An administrator's settings for the kubelet; empty: the value is read from the host."""

    root_dir: str = ""
    cgroup_root: str = ""
    cgroup_driver: str = ""
    runtime_endpoint: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class KubeletConfig:
    """The configuration of a kubelet.

    Attributes:
        root_dir: the folder with its pods' volumes and pod-resources/.
        cgroup_root: the cgroup below which the cgroups of pods are; None: not known.
        cgroup_driver: systemd or cgroupfs; empty: not configured.
        runtime_endpoint: socket of its container runtime; None: not known.
        runs: whether a running kubelet was found.
        problems: the problems that prevented reading a value.
    """

    root_dir: str = ROOT_DIR
    cgroup_root: str | None = None
    cgroup_driver: str = ""
    runtime_endpoint: str | None = None
    runs: bool = False
    problems: tuple[str, ...] = ()

    @property
    def pod_resources_socket(self) -> str:
        """Return the path of the PodResources socket, which shows the devices of each pod."""
        return f"{self.root_dir.rstrip('/')}/pod-resources/kubelet.sock"

    def with_settings(self, settings: KubeletSettings) -> "KubeletConfig":
        """Return the configuration with an administrator's settings, which take precedence."""
        return dataclasses.replace(
            self,
            root_dir=settings.root_dir or self.root_dir,
            cgroup_root=settings.cgroup_root or self.cgroup_root,
            cgroup_driver=settings.cgroup_driver or self.cgroup_driver,
            runtime_endpoint=socket_path(settings.runtime_endpoint) or self.runtime_endpoint,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _Source:
    """The sources of one kubelet's configuration."""

    arguments: tuple[str, ...] = ()
    config: str = ""
    drop_ins: str = ""
    endpoint: str = RUNTIME_ENDPOINT


def read_kubelet(root: Root) -> KubeletConfig:
    """Read the configuration from a host's files, without settings."""
    found = [each for each in host_processes.commands(root, PROGRAMS) if each.by_root]
    sources = tuple(dict.fromkeys(_source(root, command) for command in found))
    if not sources:
        configured = _ConfiguredValues(root, _Source(config=KUBEADM_CONFIG))
        return KubeletConfig(
            cgroup_root=configured.text("cgroupRoot") or None,
            cgroup_driver=configured.text("cgroupDriver"),
            runtime_endpoint=socket_path(configured.text("containerRuntimeEndpoint")) or None,
        )
    if len(sources) > 1:
        return KubeletConfig(
            runs=True,
            problems=(f"{len(sources)} kubelets with different configurations run on this host",),
        )
    (source,) = sources
    configured = _ConfiguredValues(root, source)
    endpoint = configured.flag_or("--container-runtime-endpoint", "containerRuntimeEndpoint")
    return KubeletConfig(
        root_dir=option(source.arguments, "--root-dir") or ROOT_DIR,
        cgroup_root=configured.flag_or("--cgroup-root", "cgroupRoot") or CGROUP_ROOT,
        cgroup_driver=configured.flag_or("--cgroup-driver", "cgroupDriver"),
        runtime_endpoint=socket_path(endpoint) or source.endpoint,
        runs=True,
        problems=configured.problems,
    )


def socket_path(endpoint: str) -> str:
    """Return the path of a socket that may be written as a URL; /var/run is a link to /run."""
    return re.sub(r"^/var/run/", "/run/", endpoint.removeprefix("unix://"))


class _ConfiguredValues:
    """The values in the files and flags of one kubelet."""

    def __init__(self, root: Root, source: _Source) -> None:
        self._source = source
        self._tables = list[Mapping[str, Any]]()
        self._problems = list[str]()
        for name in _files(root, source):
            table, problem = _table(root, name)
            self._tables.append(table)
            self._problems += [problem] if problem else []

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(self._problems)

    def flag_or(self, flag: str, field: str) -> str:
        return option(self._source.arguments, flag) or self.text(field)

    def text(self, field: str) -> str:
        """Return the text value of a field in the last file that has one; empty: none has it."""
        found = [value for table in self._tables if isinstance(value := table.get(field), str)]
        return found[-1] if found else ""


def _table(root: Root, name: str) -> tuple[Mapping[str, Any], str]:
    """Return the content of a file and its problem; a missing file is empty, without a problem."""
    if root.is_unreadable(name):
        return {}, f"no permission to read {name}"
    try:
        found = yaml.safe_load(root.text(name) or "")
    # An invalid date, such as one with month 99, raises ValueError and no YAMLError.
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}, f"{name} is not valid YAML"
    return (found if isinstance(found, dict) else {}), ""


def _files(root: Root, source: _Source) -> Iterator[str]:
    """Iterate over the configuration file, then its drop-ins in their order."""
    if source.config:
        yield source.config
    if source.drop_ins:
        yield from sorted(_drop_ins(root, source.drop_ins))[:MAX_DROP_INS]


def _drop_ins(root: Root, folder: str, depth: int = 3) -> Iterator[str]:
    for name in root.names(folder)[:MAX_DROP_INS]:
        path = f"{folder}/{name}"
        if name.endswith(".conf"):
            yield path
        elif depth and root.is_folder(path):
            yield from _drop_ins(root, path, depth - 1)


def _source(root: Root, command: Command) -> _Source:
    if command.name == "k3s":
        return _k3s(root)
    arguments = command.arguments[1:] if command.name == "kubelet" else _microk8s(root)
    return _Source(arguments, option(arguments, "--config"), option(arguments, "--config-dir"))


def _k3s(root: Root) -> _Source:
    """Return the sources for k3s.

    It runs the kubelet in its own process, and overwrites its arguments with its own title.
    """
    table, _ = _table(root, K3S_CONFIG)
    arguments = tuple(f"--{each}" for each in _texts(table.get("kubelet-arg")))
    return _Source(
        arguments,
        option(arguments, "--config"),
        option(arguments, "--config-dir") or K3S_DROP_INS,
        K3S_ENDPOINT,
    )


def _microk8s(root: Root) -> tuple[str, ...]:
    """Return the kubelet's arguments in MicroK8s.

    It runs the kubelet in kubelite. The arguments are in a file, one in each line.
    """
    text = root.text(MICROK8S_ARGUMENTS) or ""
    for name, value in MICROK8S_VARIABLES.items():
        text = text.replace(f"${{{name}}}", value)
    lines = (line.strip().replace('"', "") for line in text.splitlines())
    return tuple(line for line in lines if line.startswith("--"))


def _texts(value: Any) -> tuple[str, ...]:
    found = value if isinstance(value, list) else [value]
    return tuple(each for each in found if isinstance(each, str))


def resolve_on_host(host_root: pathlib.Path, path: str) -> pathlib.Path:
    """Return the agent's path of a host's path; links are resolved within the host's root."""
    return Root(host_root).find(path) or host_root / path.lstrip("/")
