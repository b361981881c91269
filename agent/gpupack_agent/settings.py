# SPDX-License-Identifier: Apache-2.0
"""Settings of the agent, read from the environment once, at start."""

import dataclasses
import math
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Literal, TypeVar, get_args

from gpupack_agent.errors import SettingsInvalid
from gpupack_crds import names

Backend = Literal["simulated", "nvml"]
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
KUBELET_PATIENCE_SECONDS = 30
"""After this long the kubelet gives up a PreStartContainer call."""
SIMULATED_FILE = pathlib.Path("/etc/gpupack/simulated.yaml")

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class NodeSettings:
    """Who the agent is."""

    name: str
    """NODE_NAME: the node it runs on, and the name of its GPUNode. Required."""

    system_namespace: str = names.SYSTEM_NAMESPACE
    """GPUPACK_SYSTEM_NAMESPACE: where the heartbeat Lease lies."""

    heartbeat_duration_seconds: int = 40
    """GPUPACK_HEARTBEAT_DURATION_SECONDS: duration of the heartbeat Lease, which is renewed four
    times as often. A node is lost when this Lease and the kubelet's are both over: jobs whose pods
    it does not end then start elsewhere. Shorter shows a loss sooner and costs writes."""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "NodeSettings":
        """Read the settings; raises SettingsInvalid."""
        name = environ.get("NODE_NAME", "")
        if not name:
            raise SettingsInvalid("NODE_NAME is not set: set it from the field spec.nodeName")
        return cls(
            name=name,
            system_namespace=environ.get("GPUPACK_SYSTEM_NAMESPACE", names.SYSTEM_NAMESPACE),
            heartbeat_duration_seconds=_read(
                environ, "GPUPACK_HEARTBEAT_DURATION_SECONDS", _positive, 40
            ),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class InventorySettings:
    """Where the list of GPUs comes from."""

    backend: Backend = "nvml"
    """GPUPACK_INVENTORY: `nvml` asks the driver, `simulated` reads a file."""

    simulated_file: pathlib.Path = SIMULATED_FILE
    """GPUPACK_SIMULATED_FILE: which GPUs to simulate on which nodes."""

    scan_seconds: float = 10.0
    """GPUPACK_SCAN_SECONDS: between two scans, more than 0; a driver's event brings the next one
    forward."""

    host_root: pathlib.Path = pathlib.Path("/")
    """GPUPACK_HOST_ROOT: where the agent sees the host's root, to find driver libraries."""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "InventorySettings":
        """Read the settings; raises SettingsInvalid."""
        return cls(
            backend=_read(environ, "GPUPACK_INVENTORY", _backend, "nvml"),
            simulated_file=_read(environ, "GPUPACK_SIMULATED_FILE", pathlib.Path, SIMULATED_FILE),
            scan_seconds=_read(environ, "GPUPACK_SCAN_SECONDS", _seconds, 10.0),
            host_root=_read(environ, "GPUPACK_HOST_ROOT", pathlib.Path, pathlib.Path("/")),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class ObservedSettings:
    """Other device plugins that may hand out this node's GPUs."""

    resources: tuple[str, ...] = ()
    """GPUPACK_OBSERVED_RESOURCES, separated by commas: names such as nvidia.com/gpu. Where the
    kubelet has devices of one of them, the agent registers nothing and only reports. Empty: it asks
    for no such thing."""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "ObservedSettings":
        """Read the settings; raises SettingsInvalid."""
        return cls(resources=_read(environ, "GPUPACK_OBSERVED_RESOURCES", _resources, ()))


@dataclasses.dataclass(frozen=True, slots=True)
class HostSettings:
    """Folders of the host that the agent works in."""

    kubelet: pathlib.Path = pathlib.Path("/var/lib/kubelet")
    """GPUPACK_KUBELET_DIR: holds device-plugins/ and pod-resources/."""

    cdi: pathlib.Path = pathlib.Path("/var/run/cdi")
    """GPUPACK_CDI_DIR: watched by the container runtime; lost at a reboot, as it should be."""

    cgroup: pathlib.Path = pathlib.Path("/sys/fs/cgroup")
    """GPUPACK_CGROUP_DIR: the node's cgroups, not the agent's own."""

    probe: pathlib.Path = pathlib.Path("/run/gpupack-agent/alive")
    """GPUPACK_PROBE_FILE: touched by the living agent, read by `python -m gpupack_agent probe`."""

    @property
    def device_plugins(self) -> pathlib.Path:
        """Where the kubelet and its device plugins keep their sockets."""
        return self.kubelet / "device-plugins"

    @property
    def pod_resources_socket(self) -> pathlib.Path:
        """Where the kubelet tells which pod holds which tickets."""
        return self.kubelet / "pod-resources/kubelet.sock"

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "HostSettings":
        """Read the settings."""
        variables = {
            "kubelet": "GPUPACK_KUBELET_DIR",
            "cdi": "GPUPACK_CDI_DIR",
            "cgroup": "GPUPACK_CGROUP_DIR",
            "probe": "GPUPACK_PROBE_FILE",
        }
        given = {
            field: pathlib.Path(environ[variable])
            for field, variable in variables.items()
            if environ.get(variable)
        }
        return cls(**given)


@dataclasses.dataclass(frozen=True, slots=True)
class PreStartSettings:
    """How long a container start may be held up."""

    wait_seconds: float = 20.0
    """GPUPACK_PRESTART_WAIT_SECONDS: for a predecessor to go or a watch to catch up; more than 0,
    since asking kubelet and API server is part of it. The kubelet gives up after 30 s and retries a
    refusal only after 0.3, 1, 16, 27 … s, so that waiting here is what makes a successor start
    soon."""

    poll_seconds: float = 0.1
    """Between two looks while waiting."""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "PreStartSettings":
        """Read the settings; raises SettingsInvalid."""
        return cls(wait_seconds=_read(environ, "GPUPACK_PRESTART_WAIT_SECONDS", _wait, 20.0))


def log_level(environ: Mapping[str, str]) -> str:
    """GPUPACK_LOG_LEVEL: how much the agent says, INFO if not set; raises SettingsInvalid."""
    return _read(environ, "GPUPACK_LOG_LEVEL", _level, "INFO")


def _read(environ: Mapping[str, str], name: str, parse: Callable[[str], T], default: T) -> T:
    text = environ.get(name, "")
    if not text:
        return default
    try:
        return parse(text)
    except ValueError as error:
        raise SettingsInvalid(f"{name}={text!r}: {error}") from error


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError("must be 1 or more")
    return number


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < math.inf:
        raise ValueError("must be a finite number, more than 0")
    return seconds


def _wait(text: str) -> float:
    seconds = _seconds(text)
    if seconds >= KUBELET_PATIENCE_SECONDS:
        raise ValueError(f"must be less than the kubelet's {KUBELET_PATIENCE_SECONDS} s")
    return seconds


def _resources(text: str) -> tuple[str, ...]:
    from gpupack_crds.gpujob import EXTENDED_RESOURCE  # noqa: PLC0415 - costs a probe 0.2 s

    found = tuple(name.strip() for name in text.split(","))
    for name in found:
        if not re.fullmatch(EXTENDED_RESOURCE, name) or name.startswith(f"{names.GROUP}/"):
            raise ValueError(
                f"{name!r} is no resource of another device plugin; set names such as "
                "nvidia.com/gpu, separated by commas"
            )
    return tuple(dict.fromkeys(found))


def _level(text: str) -> str:
    level = text.upper()
    if level not in LOG_LEVELS:
        raise ValueError(f"must be one of {', '.join(LOG_LEVELS)}")
    return level


def _backend(text: str) -> Backend:
    for backend in get_args(Backend):
        if text == backend:
            return backend  # type: ignore[no-any-return]  # get_args forgets the type
    raise ValueError(f"must be one of {', '.join(get_args(Backend))}")
