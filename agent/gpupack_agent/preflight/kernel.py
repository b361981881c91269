# SPDX-License-Identifier: Apache-2.0
"""The kernel's support for containers: cgroups, and whether they restrict access to devices."""

import dataclasses
import re
import zlib
from typing import Final

from gpupack_agent.host_files import Root

MAX_CONFIG: Final = 4 << 20
"""The largest unpacked size of a kernel's configuration; typical is a quarter of a MiB."""
GZIP: Final = 16 + zlib.MAX_WBITS
CGROUP_BPF: Final = re.compile(r"^(?:# )?CONFIG_CGROUP_BPF(=y| is not set)$", re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True)
class Kernel:
    """The running kernel.

    Attributes:
        release: its version.
        cgroups: version of the cgroup hierarchy; None: it is not mounted.
        devices: whether a cgroup can deny devices to a container; None: not known.
        iommu: the words of its command line about the IOMMU and ACS.
    """

    release: str = ""
    cgroups: int | None = None
    devices: bool | None = None
    iommu: tuple[str, ...] = ()


def read_kernel(root: Root) -> Kernel:
    """Read the kernel's properties from `/proc`, `/sys`, `/boot` and `/lib/modules`."""
    release = root.line("/proc/sys/kernel/osrelease")
    cgroups = 1 if root.names("/sys/fs/cgroup") else None
    if root.exists("/sys/fs/cgroup/cgroup.controllers"):
        cgroups = 2
    devices = None
    if cgroups is not None:
        devices = _has_devices_controller(root) if cgroups == 1 else _has_cgroup_bpf(root, release)
    arguments = (root.text("/proc/cmdline") or "").split()
    return Kernel(
        release=release,
        cgroups=cgroups,
        devices=devices,
        iommu=tuple(
            word for word in arguments if "iommu" in word.partition("=")[0] or "acs" in word
        ),
    )


def _has_devices_controller(root: Root) -> bool | None:
    """Tell whether the devices controller of version 1 is enabled; None: not known.

    A row of /proc/cgroups has name, hierarchy, number of cgroups, enabled.
    """
    rows = [line.split() for line in (root.text("/proc/cgroups") or "").splitlines()]
    enabled = [row[-1] == "1" for row in rows if row[:1] == ["devices"]]
    return any(enabled) if rows else None


def _has_cgroup_bpf(root: Root, release: str) -> bool | None:
    """Tell whether the kernel was built with BPF programs for cgroups; None: not known.

    With version 2 the runtime attaches such a program.
    """
    packed = root.binary("/proc/config.gz")
    texts = [_gunzip(packed) if packed else None]
    texts += [root.text(f"/boot/config-{release}"), root.text(f"/lib/modules/{release}/config")]
    match = next((match for text in texts if text and (match := CGROUP_BPF.search(text))), None)
    return match[1] == "=y" if match else None


def _gunzip(packed: bytes) -> str:
    try:
        return zlib.decompressobj(GZIP).decompress(packed, MAX_CONFIG).decode(errors="replace")
    except zlib.error:
        return ""
