# SPDX-License-Identifier: Apache-2.0
"""The checks of a host, with one function for each finding and its change."""

import dataclasses
import re
from collections.abc import Iterator
from typing import Final, Literal

from gpupack_agent.kubelet_config import ROOT_DIR
from gpupack_agent.preflight.host import ENVVAR_OPTION, MOUNTS_OPTION, Host, Kubelet
from gpupack_agent.preflight.runtime import CDI_BY_DEFAULT_SINCE, Runtime

Status = Literal["ok", "warning", "failure", "unknown"]

CDI_DOCUMENT: Final = "https://github.com/cncf-tags/container-device-interface#how-to-configure-cdi"
CGROUP_DOCUMENT: Final = "https://kubernetes.io/docs/concepts/architecture/cgroups/"
CONFIG_DOCUMENT: Final = "https://github.com/containerd/containerd/blob/main/docs/cri/config.md"
DEVICES_DOCUMENT: Final = "https://docs.kernel.org/admin-guide/cgroup-v2.html#device-controller"
DRIVER_DOCUMENT: Final = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/"
LOST_DOCUMENT: Final = "https://github.com/NVIDIA/nvidia-container-toolkit/issues/48"
MOUNT_DOCUMENT: Final = "https://github.com/NVIDIA/k8s-device-plugin#configuration-option-details"
MPS_DOCUMENT: Final = "https://docs.nvidia.com/deploy/mps/index.html"
P2P_DOCUMENT: Final = (
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
)
PERSISTENCE_DOCUMENT: Final = "https://docs.nvidia.com/deploy/driver-persistence/index.html"
PLUGIN_DOCUMENT: Final = (
    "https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/"
)
VARIABLE_DOCUMENT: Final = (
    "https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/security.html"
)

MIN_GPUS: Final = 2
"""The number of GPUs from which the traffic between GPUs is checked."""


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        check: name of the check.
        status: ok; warning: gpupack works, but something should be changed; failure: gpupack does
            not work, or tenants can use GPUs that they were not given; unknown: the state cannot be
            determined.
        found: description of the state.
        change: the action to take; empty: none.
        see: URL of the documentation; empty: none.
    """

    check: str
    status: Status
    found: str
    change: str = ""
    see: str = ""


def findings(host: Host) -> tuple[Finding, ...]:
    """Return all findings, in a fixed order."""
    return tuple(_run_checks(host))


def _run_checks(host: Host) -> Iterator[Finding]:
    yield _gpus(host)
    if host.gpus is None or host.gpus or host.driver.module:
        yield _driver(host)
        yield _device_nodes(host)
        yield _peer_to_peer(host)
        yield _persistence(host)
        yield _foreign_mps(host)
    yield _runtime(host)
    yield _cdi(host)
    yield _cgroups(host)
    yield _variable(host)
    yield _kubelet(host)
    yield _plugins(host)


def _gpus(host: Host) -> Finding:
    if host.gpus is None:
        return Finding("gpus", "unknown", "the host lists no PCI devices")
    if not host.gpus:
        found = "no NVIDIA GPU is installed; gpupack can only serve simulated ones here"
        return Finding("gpus", "ok", found)
    return Finding("gpus", "ok", f"{_count(len(host.gpus), 'NVIDIA GPU')} installed")


def _driver(host: Host) -> Finding:
    driver = host.driver
    if not driver.module:
        found = "NVIDIA's kernel module is not loaded"
        change = "install the driver for data centre GPUs, or load it: modprobe nvidia"
        return Finding("driver", "failure", found, change, DRIVER_DOCUMENT)
    if not driver.libraries:
        where = " and ".join(driver.searched)
        found = f"module {driver.module}, and none of its libraries below {where}"
        change = (
            "install the driver's compute libraries (libcuda.so.1, libnvidia-ml.so.1), or set "
            "agent.driverRoot (--driver-root) to their folder"
        )
        return Finding("driver", "failure", found, change, DRIVER_DOCUMENT)
    if not driver.library:
        found = f"module {driver.module}; the version of its libraries is not known"
        return Finding("driver", "unknown", found)
    if driver.library != driver.module:
        found = f"module {driver.module}, libraries {driver.library}: no CUDA program starts"
        change = "reboot, or drain the node, unload the module (rmmod) and load it again"
        return Finding("driver", "failure", found, change, DRIVER_DOCUMENT)
    where = "" if driver.folder == "/" else f", below {driver.folder}"
    return Finding("driver", "ok", f"{driver.module}, same version of module and libraries{where}")


def _device_nodes(host: Host) -> Finding:
    nodes = host.driver.nodes
    if not host.driver.module:
        return Finding("device nodes", "unknown", "there is no driver")
    missing = [name for name in ("nvidiactl", "nvidia-uvm") if name not in nodes]
    if missing or not any(name[-1:].isdigit() for name in nodes):
        found = f"device nodes are missing; /dev has {', '.join(nodes) or 'none'}"
        change = "run nvidia-modprobe -u -c 0 at each boot, or run NVIDIA's persistence daemon"
        return Finding("device nodes", "failure", found, change, DRIVER_DOCUMENT)
    by_systemd = "systemd" in host.kubelet.config.cgroup_driver or host.runtime.systemd_cgroups
    if by_systemd and host.driver.unlinked:
        found = f"{', '.join(host.driver.unlinked)} have no link in /dev/char"
        change = (
            "after `systemctl daemon-reload` containers may lose their GPUs; create the links at "
            "each boot: nvidia-ctk system create-dev-char-symlinks --create-all"
        )
        return Finding("device nodes", "warning", found, change, LOST_DOCUMENT)
    return Finding("device nodes", "ok", _count(len(nodes), "node"))


def _peer_to_peer(host: Host) -> Finding:
    gpus = host.gpus or ()
    if len(gpus) < MIN_GPUS:
        return Finding("peer to peer", "ok", "the host has fewer than two GPUs")
    translated = sorted({gpu.iommu for gpu in gpus if gpu.iommu.upper().startswith("DMA")})
    if translated:
        details = ", ".join((*translated, *host.kernel.iommu))
        found = f"the IOMMU translates the GPUs' addresses ({details})"
        change = (
            "copies between GPUs over PCIe go through the CPU, or fail: on bare metal boot with "
            "iommu=pt (or turn VT-d/AMD-Vi off), and turn ACS off on the bridges between GPUs; in "
            "a virtual machine change nothing"
        )
        return Finding("peer to peer", "warning", found, change, P2P_DOCUMENT)
    bridges = sorted({bridge for gpu in gpus for bridge in gpu.redirecting})
    if bridges:
        found = f"ACS is on at {', '.join(bridges)}: copies between GPUs over PCIe go up to the CPU"
        change = (
            "on bare metal turn it off in the firmware, or boot with pci=disable_acs_redir=... of "
            "these bridges; in a virtual machine change nothing"
        )
        return Finding("peer to peer", "warning", found, change, P2P_DOCUMENT)
    return Finding("peer to peer", "ok", "no IOMMU translates between the GPUs")


def _persistence(host: Host) -> Finding:
    if host.persistenced:
        return Finding("persistence", "ok", "NVIDIA's persistence daemon runs")
    found = "NVIDIA's persistence daemon does not run"
    change = (
        "run nvidia-persistenced: without it the first program on a GPU waits for seconds while "
        "the driver initialises the GPU (not needed on hosts whose GPUs are always in use)"
    )
    return Finding("persistence", "warning", found, change, PERSISTENCE_DOCUMENT)


def _foreign_mps(host: Host) -> Finding:
    if not host.mps:
        return Finding("mps", "ok", "no other MPS daemon than gpupack's")
    found = "an MPS daemon that is not gpupack's runs"
    change = (
        "stop it (echo quit | nvidia-cuda-mps-control): it would hold GPUs, and only one server "
        "can serve a GPU; or set shares.limits to false"
    )
    return Finding("mps", "warning", found, change, MPS_DOCUMENT)


def _runtime(host: Host) -> Finding:
    runtime = host.runtime
    if not runtime.kind:
        return _no_runtime(runtime)
    if runtime.problems:
        change = "correct the file; the runtime may still run with the earlier content"
        return Finding("container runtime", "failure", "; ".join(runtime.problems), change)
    if runtime.unreadable:
        found = f"{runtime.kind}; no permission to read {', '.join(runtime.unreadable)}"
        return Finding("container runtime", "unknown", found, "run this as root")
    if runtime.disabled:
        found = (
            f"{runtime.config} disables the CRI plugin, which the kubelet needs (disabled_plugins)"
        )
        change = 'remove "cri" from disabled_plugins (Docker\'s packages add it), and restart'
        return Finding("container runtime", "failure", found, change, CONFIG_DOCUMENT)
    version = f" {runtime.release or runtime.major}" if runtime.major else ""
    found = f"{runtime.kind}{version}, {runtime.config}, default runtime {runtime.default_runtime}"
    if host.kubelet.config.runtime_endpoint is None:
        found += "; no kubelet runs, so it is not known whether it uses this runtime"
    return Finding("container runtime", "ok", found)


def _no_runtime(runtime: Runtime) -> Finding:
    others = ", ".join(runtime.others)
    if runtime.endpoint:
        found = (
            f"the kubelet uses {runtime.endpoint}, and neither containerd nor CRI-O listens there"
        )
        change = (
            "gpupack needs containerd 1.7 or newer, or CRI-O; if it is one of them, run as root"
        )
        found += f" (found: {others})" if others else ""
        return Finding("container runtime", "unknown", found, change)
    if others:
        found = f"{others} run; no kubelet runs, so it is not known which one it uses"
        change = "start the kubelet, or set kubelet.runtimeEndpoint"
        return Finding("container runtime", "unknown", found, change)
    return Finding("container runtime", "unknown", "neither containerd nor CRI-O was found")


def _cdi(host: Host) -> Finding:
    runtime = host.runtime
    numbers = _NUMBERS.match(runtime.release)
    if numbers and (int(numbers[1]), int(numbers[2])) < CDI_SINCE:
        found = f"containerd {runtime.release} does not support CDI: pods with a GPU cannot start"
        return Finding("cdi", "failure", found, "install containerd 1.7 or newer", CDI_DOCUMENT)
    if runtime.cdi is None:
        change = (
            "make sure that CDI is on: enable_cdi = true under "
            '[plugins."io.containerd.grpc.v1.cri"] '
            "(containerd 1.7; earlier ones have no CDI, and from 2.0 on it is on)"
        )
        found = "it is not known whether CDI is on"
        return Finding("cdi", "unknown", found, change, CDI_DOCUMENT)
    if not runtime.cdi:
        section = (
            "io.containerd.cri.v1.runtime"
            if runtime.major == CDI_BY_DEFAULT_SINCE
            else _OLD_SECTION
        )
        found = f"CDI is off in {runtime.kind}: pods with a GPU cannot start"
        change = (
            f'set enable_cdi = true under [plugins."{section}"] in {runtime.config} and restart '
            "containerd (1.7 or newer)"
        )
        if runtime.kind == "cri-o":
            change = 'set cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"] and restart CRI-O'
        return Finding("cdi", "failure", found, change, CDI_DOCUMENT)
    if not {"/var/run/cdi", "/run/cdi"} & set(runtime.cdi_folders):
        found = (
            f"the runtime reads CDI specs in {', '.join(runtime.cdi_folders)}, and not in /run/cdi"
        )
        change = (
            f"add /var/run/cdi to cdi_spec_dirs in {runtime.config}: gpupack writes its specs there"
        )
        return Finding("cdi", "failure", found, change, CDI_DOCUMENT)
    return Finding("cdi", "ok", f"on, specs in {', '.join(runtime.cdi_folders)}")


_NUMBERS: Final = re.compile(r"(\d{1,9})\.(\d{1,9})")
CDI_SINCE: Final = (1, 7)
"""The first version of containerd with CDI."""
_OLD_SECTION: Final = "io.containerd.grpc.v1.cri"


def _cgroups(host: Host) -> Finding:
    driver, by_systemd = host.kubelet.config.cgroup_driver, host.runtime.systemd_cgroups
    kernel = host.kernel
    if kernel.cgroups is None:
        return Finding("cgroups", "unknown", "no cgroups are mounted in /sys/fs/cgroup")
    if kernel.devices is False:
        found = f"version {kernel.cgroups}, and containers are not prevented from using devices"
        change = "boot a kernel with CONFIG_CGROUP_BPF=y"
        if kernel.cgroups == 1:
            change = "boot without cgroup_disable=devices, or with version 2"
        return Finding("cgroups", "failure", found, change, DEVICES_DOCUMENT)
    found = f"version {kernel.cgroups}" + (f", kubelet with {driver}" if driver else "")
    below = host.kubelet.config.cgroup_root
    found += f", pods below {below}" if below not in {None, "/"} else ""
    if driver and by_systemd is not None and (driver == "systemd") != by_systemd:
        other = "systemd" if by_systemd else "cgroupfs"
        change = f"give kubelet and {host.runtime.kind} the same: SystemdCgroup = true in both"
        found = f"{found}, {host.runtime.kind} with {other}"
        return Finding("cgroups", "failure", found, change, CGROUP_DOCUMENT)
    if kernel.cgroups == 1:
        change = (
            "boot with version 2: from 1.35 on a kubelet with failCgroupV1 does not start with "
            "version 1"
        )
        return Finding("cgroups", "warning", found, change, CGROUP_DOCUMENT)
    return Finding("cgroups", "ok", found)


def _variable(host: Host) -> Finding:
    nvidia, default = host.nvidia_runtime, host.runtime.default_runtime
    if not nvidia.config:
        return Finding("nvidia runtime", "ok", "NVIDIA's container runtime is not installed")
    if nvidia.accepts_envvar is None:
        found = f"{nvidia.config} cannot be read"
        change = "run this as root, or correct the file"
        return Finding("nvidia runtime", "unknown", found, change, VARIABLE_DOCUMENT)
    if not nvidia.accepts_envvar and nvidia.accepts_mounts:
        found = (
            f"{MOUNTS_OPTION} = true: a pod that may mount the host's /dev/null gets any GPUs "
            "that it names"
        )
        change = (
            f"set it to false in {nvidia.config} if no device plugin assigns GPUs by mounts; "
            "gpupack-hosts refuses such pods where it is enabled"
        )
        return Finding("nvidia runtime", "warning", found, change, MOUNT_DOCUMENT)
    if not nvidia.accepts_envvar:
        return Finding("nvidia runtime", "ok", f"{ENVVAR_OPTION} = false")
    change = f"set {ENVVAR_OPTION} = false in {nvidia.config}"
    if "nvidia" not in default:
        found = f"{ENVVAR_OPTION} = true, for pods of its runtime class"
        return Finding("nvidia runtime", "warning", found, change, VARIABLE_DOCUMENT)
    found = (
        "it is the default runtime, and an image that sets NVIDIA_VISIBLE_DEVICES gets the GPUs "
        "that it names, even if they were not assigned to it"
    )
    change += f", or make runc the default runtime in {host.runtime.config}"
    return Finding("nvidia runtime", "failure", found, change, VARIABLE_DOCUMENT)


def _kubelet(host: Host) -> Finding:
    kubelet = host.kubelet
    contradictions = tuple(_contradictions(kubelet))
    if contradictions:
        change = "set these values to those of the kubelet, or leave them empty"
        return Finding("kubelet", "failure", "; ".join(contradictions), change)
    if kubelet.read.problems:
        found = "; ".join(kubelet.read.problems)
        change = "run this as root, or set kubelet.rootDir, cgroupRoot and runtimeEndpoint"
        return Finding("kubelet", "unknown", found, change)
    if not kubelet.device_plugins:
        found = "there is no folder for device plugins: is this a node?"
        return Finding("kubelet", "unknown", found, "join the host to a cluster", PLUGIN_DOCUMENT)
    if not kubelet.pod_resources:
        found = f"its socket {kubelet.config.pod_resources_socket} is missing"
        change = "turn its feature gate KubeletPodResources on (it is by default), and restart it"
        if not kubelet.read.runs:
            change = "start the kubelet; if it has another --root-dir, set kubelet.rootDir"
        return Finding("kubelet", "failure", found, change, PLUGIN_DOCUMENT)
    found = "it accepts device plugins, and shows the devices of each pod"
    if kubelet.config.root_dir != ROOT_DIR:
        found += f", in {kubelet.config.root_dir}"
    return Finding("kubelet", "ok", found)


def _contradictions(kubelet: Kubelet) -> Iterator[str]:
    """Iterate over the settings that differ from the kubelet's own values."""
    if not kubelet.read.runs:
        return
    for value, field in (
        ("rootDir", "root_dir"),
        ("cgroupRoot", "cgroup_root"),
        ("cgroupDriver", "cgroup_driver"),
        ("runtimeEndpoint", "runtime_endpoint"),
    ):
        taken, read = getattr(kubelet.config, field), getattr(kubelet.read, field)
        if read and taken != read:
            yield f"kubelet.{value} is {taken}, and the kubelet uses {read}"


def _plugins(host: Host) -> Finding:
    others = [name for name in host.kubelet.plugins if "gpupack" not in name]
    nvidia = [name for name in others if "nvidia" in name]
    if nvidia:
        found = f"NVIDIA's device plugin serves this node ({', '.join(nvidia)})"
        change = (
            "gpupack places jobs on the node and that plugin chooses the devices (observed); "
            "remove the plugin from the node so that gpupack offers shares, MIG slices and choice"
        )
        return Finding("device plugins", "warning", found, change, PLUGIN_DOCUMENT)
    return Finding("device plugins", "ok", ", ".join(others) or "no other device plugins")


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
