# SPDX-License-Identifier: Apache-2.0
"""A host's root, made of files."""

import pytest

from gpupack_agent.preflight.checks import findings
from gpupack_agent.preflight.host import read_host

DRIVER = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
MODULE = "github.com/containerd/containerd{0}"
BUILD = f"path\t{MODULE}/cmd/containerd\nmod\t{MODULE}\t{{1}}\t\n"


class Root:
    """Writes what a host may have."""

    def __init__(self, path):
        self.path = path
        self.file("etc/os-release", 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.3 LTS"\n')
        self.file("proc/sys/kernel/hostname", "gpu-1\n")
        self.file("proc/sys/kernel/osrelease", "6.8.0\n")
        self.file("sys/fs/cgroup/cgroup.controllers", "cpu memory\n")

    def file(self, name, text=""):
        found = self.path / name
        found.parent.mkdir(parents=True, exist_ok=True)
        found.write_text(text)
        return found

    def link(self, name, target):
        found = self.path / name
        found.parent.mkdir(parents=True, exist_ok=True)
        found.symlink_to(target)

    def process(self, number, *words, cgroup="0::/system.slice/x.service", uids="0 0"):
        self.file(f"proc/{number}/cmdline", "\0".join(words) + "\0")
        self.file(f"proc/{number}/cgroup", cgroup + "\n")
        self.file(f"proc/{number}/status", "Name:\tx\nUid:\t" + "\t".join(uids.split()) + "\n")

    def gpu(self, address="0000:3b:00.0", iommu=""):
        here = f"sys/bus/pci/devices/{address}"
        self.file(f"{here}/vendor", "0x10de\n")
        self.file(f"{here}/class", "0x030200\n")
        if iommu:
            self.file(f"{here}/iommu_group/type", f"{iommu}\n")

    def driver(self, *, module="580.159.04", library="580.159.04"):
        if module:
            self.file("proc/driver/nvidia/version", DRIVER.replace("580.159.04", module))
        for name in ("libcuda.so", "libnvidia-ml.so"):
            self.file(f"{LIBRARIES}/{name}.{library}")
            self.link(f"{LIBRARIES}/{name}.1", f"{name}.{library}")
        for name in ("nvidia0", "nvidiactl", "nvidia-uvm"):
            self.file(f"dev/{name}")
        # What is no device has this number.
        self.file("dev/char/0:0")

    def containerd(self, config="", *, version="v2.1.4", binary="usr/bin/containerd"):
        major = "/v2" if version.startswith("v2") else ""
        self.file(binary, f"\x7fELF\n{BUILD.format(major, version)}")
        if config:
            self.file("etc/containerd/config.toml", config)

    def kubelet(self, *plugins, cgroup_driver="systemd"):
        self.file("var/lib/kubelet/config.yaml", f"cgroupDriver: {cgroup_driver}\n")
        self.file("var/lib/kubelet/pod-resources/kubelet.sock")
        for name in ("kubelet.sock", *plugins):
            self.file(f"var/lib/kubelet/device-plugins/{name}")

    def found(self, **known):
        """Findings by their checks."""
        return {each.check: each for each in findings(read_host(self.path, **known))}

    def statuses(self):
        return {check: each.status for check, each in self.found().items()}


@pytest.fixture
def root(tmp_path):
    """A host of which nothing is known but its system."""
    return Root(tmp_path)


@pytest.fixture
def ready(root):
    """A host with a GPU where nothing is to be changed."""
    root.gpu()
    root.driver()
    root.containerd('version = 3\n[plugins."io.containerd.cri.v1.runtime"]\n')
    root.kubelet()
    root.process(77, "/usr/bin/nvidia-persistenced", "--user", "nvidia")
    return root
