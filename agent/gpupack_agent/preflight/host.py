# SPDX-License-Identifier: Apache-2.0
"""The properties of a host that the checks need, read once."""

import dataclasses
import os
import pathlib
import re
from collections.abc import Iterator
from typing import Final

from gpupack_agent.host_files import Root
from gpupack_agent.host_processes import commands
from gpupack_agent.inventory.driver_files import DISPLAY_CLASS, NVIDIA_PCI, SHARED_NODES
from gpupack_agent.inventory.driver_root import AUTO, DriverSearch, HostDriver, module_version
from gpupack_agent.kubelet_config import (
    DEVICE_PLUGINS,
    KubeletConfig,
    KubeletSettings,
    read_kubelet,
)
from gpupack_agent.preflight.kernel import Kernel, read_kernel
from gpupack_agent.preflight.pci import DEVICES as PCI
from gpupack_agent.preflight.pci import redirecting_bridges
from gpupack_agent.preflight.runtime import Runtime, parse_toml, read_runtime

NVIDIA_CONFIG: Final = "/etc/nvidia-container-runtime/config.toml"
NVIDIA_CONFIGS: Final = (
    NVIDIA_CONFIG,
    "/usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml",
)
"""The configuration files of NVIDIA's package and of its GPU operator."""
ENVVAR_OPTION: Final = "accept-nvidia-visible-devices-envvar-when-unprivileged"
MOUNTS_OPTION: Final = "accept-nvidia-visible-devices-as-volume-mounts"
MPS_PIPE: Final = "/tmp/nvidia-mps/control"  # noqa: S108 - NVIDIA's default, of the host

PROGRAMS: Final = (
    "containerd",
    "crio",
    "nvidia-cuda-mps-control",
    "nvidia-device-plugin",
    "nvidia-persistenced",
)
DEVICE_NODE: Final = re.compile(r"nvidia\d+")


@dataclasses.dataclass(frozen=True, slots=True)
class PciGpu:
    """An NVIDIA GPU that is plugged in.

    Attributes:
        address: its address on the PCI bus.
        iommu: how the kernel translates its addresses, such as DMA-FQ or identity; empty: it
            does not.
        redirecting: bridges above it that redirect its traffic to other GPUs to the CPU.
    """

    address: str
    iommu: str = ""
    redirecting: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Driver:
    """NVIDIA's driver.

    Attributes:
        module: version of the kernel's module; empty: it is not loaded.
        library: version of its libraries; empty: there are none, or their names do not show it.
        libraries: number of libraries that containers need and that were found.
        searched: the folders that were searched for the driver.
        folder: the folder in which it was found.
        nodes: names of its device nodes in `/dev`.
        unlinked: device nodes without a link in `/dev/char`.
    """

    module: str = ""
    library: str = ""
    libraries: int = 0
    searched: tuple[str, ...] = ()
    folder: str = "/"
    nodes: tuple[str, ...] = ()
    unlinked: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Kubelet:
    """The kubelet.

    Attributes:
        config: the configuration that gpupack uses, in which settings take precedence.
        read: the configuration as read from the host.
        device_plugins: whether its folder for device plugins exists.
        pod_resources: whether its PodResources socket exists, which shows the devices of each pod.
        plugins: sockets of device plugins.
    """

    config: KubeletConfig = dataclasses.field(default_factory=KubeletConfig)
    read: KubeletConfig = dataclasses.field(default_factory=KubeletConfig)
    device_plugins: bool = False
    pod_resources: bool = False
    plugins: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class NvidiaRuntime:
    """NVIDIA's container runtime.

    Attributes:
        config: its configuration file; empty: there is none.
        accepts_envvar: whether an unprivileged container gets the GPUs that its variable names;
            None: the file cannot be read.
        accepts_mounts: whether a container gets the GPUs that its mounts name.
    """

    config: str = ""
    accepts_envvar: bool | None = True
    accepts_mounts: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Host:
    """The properties of a host that the checks need."""

    name: str = ""
    system: str = ""
    kernel: Kernel = dataclasses.field(default_factory=Kernel)
    gpus: tuple[PciGpu, ...] | None = ()
    """The NVIDIA GPUs; None: the host lists no PCI devices."""
    driver: Driver = dataclasses.field(default_factory=Driver)
    runtime: Runtime = dataclasses.field(default_factory=Runtime)
    kubelet: Kubelet = dataclasses.field(default_factory=Kubelet)
    nvidia_runtime: NvidiaRuntime = dataclasses.field(default_factory=NvidiaRuntime)
    mps: bool = False
    """Whether an MPS daemon runs outside pods; gpupack's own daemons run in a pod."""
    persistenced: bool = False
    """Whether NVIDIA's persistence daemon runs."""


def read_host(
    path: pathlib.Path,
    *,
    name: str = "",
    driver_root: str = AUTO,
    kubelet: KubeletSettings | None = None,
) -> Host:
    """Read a host.

    Args:
        path: the path of its root.
        name: the name of its node; empty: the kernel's host name, which in a pod is the pod's.
        driver_root: the folder of NVIDIA's driver, or `auto`.
        kubelet: the settings for the kubelet in gpupack's values.
    """
    root = Root(path)
    running = commands(root, PROGRAMS)
    names = {command.name for command in running}
    release = dict(_pairs(root.text("/etc/os-release") or ""))
    kubelet_found = _kubelet(root, kubelet or KubeletSettings())
    return Host(
        name=name or root.line("/proc/sys/kernel/hostname"),
        system=release.get("PRETTY_NAME", ""),
        kernel=read_kernel(root),
        gpus=_gpus(root),
        driver=_driver(root, DriverSearch(path, driver_root)),
        runtime=read_runtime(root, running, kubelet_found.config.runtime_endpoint),
        kubelet=kubelet_found,
        nvidia_runtime=_nvidia_runtime(root),
        mps="nvidia-cuda-mps-control" in names or root.exists(MPS_PIPE),
        persistenced="nvidia-persistenced" in names,
    )


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals:
            yield key.strip(), value.strip().strip("\"'")


def _gpus(root: Root) -> tuple[PciGpu, ...] | None:
    devices = root.names(PCI)
    if not devices:
        return None
    return tuple(
        PciGpu(
            address,
            root.line(f"{PCI}/{address}/iommu_group/type"),
            redirecting_bridges(root, address),
        )
        for address in devices
        if root.line(f"{PCI}/{address}/vendor").lower() == NVIDIA_PCI
        and root.line(f"{PCI}/{address}/class").lower().startswith(DISPLAY_CLASS)
    )


def _driver(root: Root, search: DriverSearch) -> Driver:
    found = search.find()
    nodes = [name for name in sorted(found.nodes()) if DEVICE_NODE.fullmatch(name)]
    nodes += [name for name in SHARED_NODES if found.node(name)]
    return Driver(
        module=module_version(root),
        library=found.version,
        libraries=len(found.libraries),
        searched=search.folders,
        folder=found.folder,
        nodes=tuple(nodes),
        unlinked=tuple(name for name in nodes if not _is_linked(root, found, name)),
    )


def _is_linked(root: Root, driver: HostDriver, name: str) -> bool:
    """Tell whether /dev/char has a link to the device node, by its numbers."""
    try:
        device = driver.nodes()[name].stat().st_rdev
    except (OSError, KeyError):
        return True
    number = f"{os.major(device)}:{os.minor(device)}"
    return number in root.names("/dev/char")


def _kubelet(root: Root, settings: KubeletSettings) -> Kubelet:
    read = read_kubelet(root)
    config = read.with_settings(settings)
    sockets = root.names(DEVICE_PLUGINS)
    return Kubelet(
        config=config,
        read=read,
        device_plugins=root.exists(DEVICE_PLUGINS),
        pod_resources=root.exists(config.pod_resources_socket),
        plugins=tuple(s for s in sockets if s.endswith(".sock") and s != "kubelet.sock"),
    )


def _nvidia_runtime(root: Root) -> NvidiaRuntime:
    config = next(
        (each for each in NVIDIA_CONFIGS if root.exists(each) or root.is_unreadable(each)), ""
    )
    if not config:
        return NvidiaRuntime()
    try:
        found = parse_toml(root.text(config))
    except ValueError:
        return NvidiaRuntime(config, None)
    # NVIDIA's defaults are true and false.
    return NvidiaRuntime(
        config, found.get(ENVVAR_OPTION, True) is True, found.get(MOUNTS_OPTION) is True
    )
