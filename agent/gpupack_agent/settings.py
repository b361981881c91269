# SPDX-License-Identifier: Apache-2.0
"""The settings of the agent, read from the environment once, at start."""

import dataclasses
import pathlib
import urllib.parse
from collections.abc import Mapping
from typing import Literal, get_args

from gpupack_agent import liveness
from gpupack_agent.dcgm import address
from gpupack_agent.inventory.driver_root import AUTO, DriverSearch, parse_setting
from gpupack_agent.kubelet_config import DEVICE_PLUGINS, KubeletSettings
from gpupack_agent.mps.threads import (
    NO_THREAD_PERCENTAGES,
    ThreadPercentages,
    parse_thread_percentages,
)
from gpupack_crds import names
from gpupack_crds.vendors import Vendors, parse_vendors
from gpupack_kubeclient.environment import Environment, SettingsInvalid

Backend = Literal["simulated", "nvml"]
Overrun = Literal["Event", "End"]
MAX_WAIT_SECONDS = 29
"""The longest wait: the kubelet gives up a PreStartContainer call after 30 s."""
SIMULATED_FILE = "/etc/gpupack/simulated.yaml"
SIMULATED_LAYOUTS = "/run/gpupack/simulated"


@dataclasses.dataclass(frozen=True, slots=True)
class NodeSettings:
    """The identity of the agent's node, and its heartbeat."""

    name: str
    """NODE_NAME: the node that the agent runs on, and the name of its GPUNode. Required."""

    system_namespace: str = names.SYSTEM_NAMESPACE
    """GPUPACK_SYSTEM_NAMESPACE: the namespace of the heartbeat Lease."""

    heartbeat_duration_seconds: int = 40
    """GPUPACK_HEARTBEAT_DURATION_SECONDS: duration of the heartbeat Lease, which is renewed four
    times within it. A node is lost when this Lease and the kubelet's have both expired. Jobs whose
    pods it does not end then start elsewhere. A shorter duration shows a loss sooner and costs more
    writes."""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "NodeSettings":
        """Read the settings; raises SettingsInvalid."""
        environment = Environment(environ)
        return cls(
            name=environment.required("NODE_NAME", "the field spec.nodeName (downward API)"),
            system_namespace=environment.text("GPUPACK_SYSTEM_NAMESPACE", names.SYSTEM_NAMESPACE),
            heartbeat_duration_seconds=environment.whole("GPUPACK_HEARTBEAT_DURATION_SECONDS", 40),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class InventorySettings:
    """The settings of the inventory: the source of the list of GPUs."""

    backend: Backend = "nvml"
    """GPUPACK_INVENTORY: `nvml` queries the driver, `simulated` reads a file."""

    simulated_file: pathlib.Path = pathlib.Path(SIMULATED_FILE)
    """GPUPACK_SIMULATED_FILE: the file that lists the simulated GPUs of each node."""

    simulated_layouts: pathlib.Path = pathlib.Path(SIMULATED_LAYOUTS)
    """GPUPACK_SIMULATED_LAYOUTS: the folder that records changed MIG layouts of simulated GPUs."""

    mig_layouts: bool = False
    """GPUPACK_MIG_LAYOUTS: whether GPUs in MIG mode are partitioned as GPUNode's spec requests,
    once no pod holds their slices."""

    scan_seconds: float = 10.0
    """GPUPACK_SCAN_SECONDS: the time between two scans, more than 0. A driver event starts the next
    scan earlier."""

    timeout_seconds: float = 10.0
    """GPUPACK_DRIVER_TIMEOUT_SECONDS: the time limit for reading one GPU from the driver. A process
    whose call does not return is killed, and that GPU is Failed."""

    hysteresis_seconds: float = 60.0
    """GPUPACK_HYSTERESIS_SECONDS: the time for which a GPU must be better before GPUNode shows it.
    GPUNode shows a worse GPU at once."""

    idle_seconds: float = 60.0
    """GPUPACK_IDLE_SECONDS: the time for which a held GPU must run nothing before GPUNode shows
    since when it is idle."""

    host_root: pathlib.Path = pathlib.Path("/")
    """GPUPACK_HOST_ROOT: the agent's path of the host's root, to find driver libraries."""

    driver_root: str = AUTO
    """GPUPACK_DRIVER_ROOT: the host's folder with its driver; `auto`: the folders of distributions,
    of NVIDIA's GPU operator and of GKE are searched."""

    @property
    def driver(self) -> DriverSearch:
        """Return the search for the host's driver."""
        return DriverSearch(self.host_root, self.driver_root)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "InventorySettings":
        """Read the settings; raises SettingsInvalid."""
        environment = Environment(environ)
        return cls(
            backend=environment.choice("GPUPACK_INVENTORY", get_args(Backend), "nvml"),
            simulated_file=environment.path("GPUPACK_SIMULATED_FILE", SIMULATED_FILE),
            simulated_layouts=environment.path("GPUPACK_SIMULATED_LAYOUTS", SIMULATED_LAYOUTS),
            mig_layouts=environment.choice("GPUPACK_MIG_LAYOUTS", ("true", "false"), "false")
            == "true",
            scan_seconds=environment.seconds("GPUPACK_SCAN_SECONDS", 10.0),
            timeout_seconds=environment.seconds("GPUPACK_DRIVER_TIMEOUT_SECONDS", 10.0),
            hysteresis_seconds=environment.seconds("GPUPACK_HYSTERESIS_SECONDS", 60.0),
            idle_seconds=environment.seconds("GPUPACK_IDLE_SECONDS", 60.0),
            host_root=environment.path("GPUPACK_HOST_ROOT", "/"),
            driver_root=environment.parsed(
                "GPUPACK_DRIVER_ROOT",
                parse_setting,
                AUTO,
                "auto, or an absolute path such as /run/nvidia/driver",
            ),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class ObservedSettings:
    """The settings for other device plugins that may hand out this node's GPUs."""

    resources: tuple[str, ...] = ()
    """GPUPACK_OBSERVED_RESOURCES: names such as nvidia.com/gpu, separated by commas. If the kubelet
    has devices of one of them, the agent registers nothing and only reports. Empty: the agent does
    not look for other plugins."""

    vendors: Vendors = dataclasses.field(default_factory=Vendors)
    """GPUPACK_VENDORS: the chart's table in JSON, which describes the GPUs of those resources."""

    @property
    def of_other_vendors(self) -> tuple[str, ...]:
        """Return the resources of GPUs that NVIDIA's driver does not show."""
        return tuple(name for name in self.resources if not self.vendors.driver_shows(name))

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "ObservedSettings":
        """Read the settings; raises SettingsInvalid."""
        environment = Environment(environ)
        return cls(
            resources=environment.parsed(
                "GPUPACK_OBSERVED_RESOURCES",
                names.foreign_resources,
                (),
                names.FOREIGN_RESOURCES,
            ),
            vendors=environment.stated("GPUPACK_VENDORS", parse_vendors, Vendors()),
        )


def kubelet_settings(environment: Environment) -> KubeletSettings:
    """Return an administrator's settings for the kubelet, from the chart's values kubelet.*."""
    return KubeletSettings(
        root_dir=environment.text("GPUPACK_KUBELET_ROOT_DIR", ""),
        cgroup_root=environment.text("GPUPACK_KUBELET_CGROUP_ROOT", ""),
        cgroup_driver=environment.text("GPUPACK_KUBELET_CGROUP_DRIVER", ""),
        runtime_endpoint=environment.text("GPUPACK_KUBELET_RUNTIME_ENDPOINT", ""),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class HostSettings:
    """The folders of the host that the agent uses."""

    device_plugins: pathlib.Path = pathlib.Path(DEVICE_PLUGINS)
    """GPUPACK_DEVICE_PLUGINS_DIR: the folder with the sockets of kubelet and device plugins."""

    kubelet: KubeletSettings = dataclasses.field(default_factory=KubeletSettings)
    """GPUPACK_KUBELET_ROOT_DIR, GPUPACK_KUBELET_CGROUP_ROOT, GPUPACK_KUBELET_CGROUP_DRIVER and
    GPUPACK_KUBELET_RUNTIME_ENDPOINT: settings for the kubelet. Values that are not set are read
    under the host's root."""

    cdi: pathlib.Path = pathlib.Path("/var/run/cdi")
    """GPUPACK_CDI_DIR: the folder of CDI specs, which the container runtime watches. A reboot
    empties it, as intended."""

    cgroup: pathlib.Path = pathlib.Path("/sys/fs/cgroup")
    """GPUPACK_CGROUP_DIR: the folder of the node's cgroups, not of the agent's own."""

    probe: pathlib.Path = liveness.FILE
    """GPUPACK_PROBE_FILE: the file that a live agent writes and `gpupack_agent.probe` reads."""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "HostSettings":
        """Read the settings."""
        environment = Environment(environ)
        return cls(
            device_plugins=environment.path("GPUPACK_DEVICE_PLUGINS_DIR", DEVICE_PLUGINS),
            kubelet=kubelet_settings(environment),
            cdi=environment.path("GPUPACK_CDI_DIR", "/var/run/cdi"),
            cgroup=environment.path("GPUPACK_CGROUP_DIR", "/sys/fs/cgroup"),
            probe=environment.path("GPUPACK_PROBE_FILE", str(liveness.FILE)),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class LimitSettings:
    """The settings for the enforcement of limited shares."""

    mps: pathlib.Path = pathlib.Path("/run/gpupack/mps")
    """GPUPACK_MPS_DIR: the folder that agent and MPS supervisor share; its path on the host is the
    same."""

    overrun: Overrun = "End"
    """GPUPACK_OVERRUN: the reaction to a pod whose processes use more memory than its share, or
    leave MPS. `Event`: the pod gets an Event. `End`: then its processes on the GPU are ended,
    too."""

    overrun_seconds: float = 2.0
    """GPUPACK_OVERRUN_SECONDS: the time for which a share may be exceeded before `End` acts."""

    thread_percentages: ThreadPercentages = NO_THREAD_PERCENTAGES
    """GPUPACK_CORRECT_THREAD_PERCENTAGES: the percentages of a model's threads with which matrix
    products are correct."""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "LimitSettings":
        """Read the settings; raises SettingsInvalid."""
        environment = Environment(environ)
        return cls(
            mps=environment.path("GPUPACK_MPS_DIR", "/run/gpupack/mps"),
            overrun=environment.choice("GPUPACK_OVERRUN", get_args(Overrun), "End"),
            overrun_seconds=environment.seconds("GPUPACK_OVERRUN_SECONDS", 2.0),
            thread_percentages=environment.stated(
                "GPUPACK_CORRECT_THREAD_PERCENTAGES",
                parse_thread_percentages,
                NO_THREAD_PERCENTAGES,
            ),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class DcgmSettings:
    """The settings of NVIDIA's DCGM exporter, a second source of the GPUs' state."""

    exporter: str = ""
    """GPUPACK_DCGM_EXPORTER: the URL of its metrics; `auto`: that of a pod of this node; empty: it
    is not queried."""

    namespaces: tuple[str, ...] = ()
    """GPUPACK_DCGM_NAMESPACES: the namespaces where `auto` looks for that pod, separated by commas.
    In other namespaces any tenant could create such a pod."""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "DcgmSettings":
        """Read the settings; raises SettingsInvalid."""
        environment = Environment(environ)
        exporter = environment.parsed(
            "GPUPACK_DCGM_EXPORTER",
            _exporter,
            "",
            "auto, or a URL such as http://10.0.0.1:9400/metrics",
        )
        named = environment.text("GPUPACK_DCGM_NAMESPACES", "").split(",")
        namespaces = tuple(name for name in map(str.strip, named) if name)
        if exporter == address.AUTO and not namespaces:
            raise SettingsInvalid(
                "GPUPACK_DCGM_NAMESPACES is not set; with GPUPACK_DCGM_EXPORTER=auto set it to the "
                "namespaces where DCGM exporter runs, such as gpu-operator"
            )
        return cls(exporter=exporter, namespaces=namespaces)


def _exporter(text: str) -> str:
    """Check the setting of the exporter; raises ValueError."""
    parts = urllib.parse.urlsplit(text)
    if text == address.AUTO or (parts.scheme in {"http", "https"} and parts.hostname):
        return text
    raise ValueError(text)


@dataclasses.dataclass(frozen=True, slots=True)
class PreStartSettings:
    """The settings for the delay of a container start."""

    wait_seconds: float = 20.0
    """GPUPACK_PRESTART_WAIT_SECONDS: the time to wait for a predecessor to terminate or a watch to
    catch up. It must be more than 0, because it includes the calls to kubelet and API server. The
    kubelet gives up after 30 s and retries a refusal only after 0.3, 1, 16, 27 … s. A successor
    starts soon only because the agent waits here."""

    poll_seconds: float = 0.1
    """The time between two attempts while waiting."""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "PreStartSettings":
        """Read the settings; raises SettingsInvalid."""
        wait_seconds = Environment(environ).seconds(
            "GPUPACK_PRESTART_WAIT_SECONDS", 20.0, most=MAX_WAIT_SECONDS
        )
        return cls(wait_seconds=wait_seconds)
