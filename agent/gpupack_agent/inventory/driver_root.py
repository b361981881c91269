# SPDX-License-Identifier: Apache-2.0
"""The search for NVIDIA's driver on a host.

    /                             distributions, and NVIDIA's installer
    /run/nvidia/driver            the root of the driver container of NVIDIA's GPU operator
    /home/kubernetes/bin/nvidia   GKE

A setting can name any other folder. The usual places below each folder are searched; for the host's
own root the loader's cache is searched, too. A folder need not exist when the agent starts, because
a driver container may take minutes. So each call searches again.

Several folders can contain a driver, such as an old one that a driver container replaces. Then the
driver whose version the kernel has loaded counts.

The parts of a driver are in different places: libraries and programs below its folder; device nodes
below that folder (`/run/nvidia/driver/dev`) or in the host's own /dev.
"""

import dataclasses
import fnmatch
import itertools
import pathlib
import re
from collections.abc import Iterable, Iterator
from typing import Final

from gpupack_agent.host_files import Root
from gpupack_agent.inventory import loader_cache

AUTO: Final = "auto"

ROOTS: Final = ("/", "/run/nvidia/driver", "/home/kubernetes/bin/nvidia")
"""The folders that are searched unless a setting names one."""

LIBRARY_FOLDERS: Final = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/local/nvidia/lib64",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib",
    "lib",
    ".",
)
"""The places of libraries below a driver's folder; the first place with any of them counts."""

PROGRAM_FOLDERS: Final = (
    "usr/local/nvidia/bin",
    "opt/bin",
    "usr/bin",
    "usr/sbin",
    "bin",
    "sbin",
    ".",
)
"""The places of programs below a driver's folder. If a driver has a separate folder, the file in
/usr/bin can be a script that calls the program there."""

LIBRARIES: Final = (
    "libcuda.so.1",
    "libcudadebugger.so.1",
    "libnvidia-gpucomp.so.*",
    "libnvidia-ml.so.1",
    "libnvidia-nvvm.so.4",
    "libnvidia-nvvm70.so.4",
    "libnvidia-pkcs11-openssl3.so.*",
    "libnvidia-ptxjitcompiler.so.1",
)
"""File names and patterns of the libraries for compute, without those for graphics and video."""

CACHED: Final = ("libcuda.so.1", "libnvidia-ml.so.1")
"""The libraries whose folders are searched for in the loader's cache."""

MODULE: Final = "/proc/driver/nvidia/version"
_MODULE_VERSION: Final = re.compile(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)")
_LIBRARY_VERSION: Final = re.compile(r"\.so\.(\d+(?:\.\d+)+)$")


@dataclasses.dataclass(frozen=True, slots=True)
class HostDriver:
    """A host's driver, which may be missing.

    Attributes:
        host: this process's path of the host's root.
        folder: the driver's folder, as a path of the host.
        libraries: names that programs look for, and this process's paths of the files; empty: there
            is no driver.
    """

    host: pathlib.Path
    folder: str = "/"
    libraries: tuple[tuple[str, pathlib.Path], ...] = ()

    @property
    def version(self) -> str:
        """Return the version of its libraries; empty: their names do not show it."""
        found = (_LIBRARY_VERSION.search(path.name) for _, path in self.libraries)
        return max((match.group(1) for match in found if match), default="", key=len)

    def program(self, name: str) -> pathlib.Path | None:
        """Return this process's path of a program of the driver; None: there is none."""
        found = (_resolved(self.host, self.folder, f"{place}/{name}") for place in PROGRAM_FOLDERS)
        return next(filter(None, found), None)

    def node(self, name: str) -> str | None:
        """Return the host's path of a device node such as `nvidia0`; None: it does not exist."""
        paths = (f"{folder}/{name}" for folder in self._node_folders())
        return next((path for path in paths if self._process_path(path).exists()), None)

    def nodes(self) -> dict[str, pathlib.Path]:
        """Return all device nodes: names below /dev, and this process's paths of the files."""
        found: dict[str, pathlib.Path] = {}
        for folder in self._node_folders():
            process_path = self._process_path(folder)
            for path in (*process_path.glob("nvidia*"), *process_path.glob("nvidia-caps/*")):
                found.setdefault(str(path.relative_to(process_path)), path)
        return found

    def _process_path(self, path: str) -> pathlib.Path:
        return self.host / path.lstrip("/")

    def _node_folders(self) -> tuple[str, ...]:
        own = () if self.folder == "/" else (f"{self.folder.rstrip('/')}/dev",)
        return (*own, "/dev")


@dataclasses.dataclass(frozen=True, slots=True)
class DriverSearch:
    """The search for the driver of one host.

    Attributes:
        host: this process's path of the host's root.
        setting: `auto`, or the driver's folder on the host.
    """

    host: pathlib.Path
    setting: str = AUTO

    @property
    def folders(self) -> tuple[str, ...]:
        """Return the folders that are searched, as paths of the host."""
        return ROOTS if self.setting == AUTO else (self.setting,)

    def find(self) -> HostDriver:
        """Find the driver, as far as it is present at this moment."""
        module = module_version(Root(self.host))
        found = list[HostDriver]()
        for folder in self.folders:
            found += self._find_below(folder)
            if found and (not module or found[-1].version in {"", module}):
                return found[-1]
        return found[0] if found else HostDriver(self.host)

    def _find_below(self, folder: str) -> tuple[HostDriver, ...]:
        cached: Iterable[tuple[str, ...]] = ()
        if folder == "/":
            cached = (loader_cache.folders_of(Root(self.host), name) for name in CACHED)
        for place in itertools.chain(LIBRARY_FOLDERS, *cached):
            if libraries := tuple(self._libraries(folder, place)):
                return (HostDriver(self.host, folder, libraries),)
        return ()

    def _libraries(self, folder: str, place: str) -> Iterator[tuple[str, pathlib.Path]]:
        process_path = _resolved(self.host, folder, place)
        files = Root(process_path).names("/") if process_path else []
        names = (fnmatch.filter(files, pattern) for pattern in LIBRARIES)
        for name in itertools.chain.from_iterable(names):
            if file := _resolved(self.host, folder, f"{place}/{name}"):
                yield name, file


def _resolved(host: pathlib.Path, folder: str, name: str) -> pathlib.Path | None:
    """Resolve a path; links are followed as in the driver's container, else as on the host."""
    root = Root(host).find(folder)
    inside = Root(root).find(name) if root else None
    return inside or Root(host).find(f"{folder}/{name}")


def module_version(host: Root) -> str:
    """Return the version of the module that the kernel has loaded; empty: none."""
    found = _MODULE_VERSION.search(host.text(MODULE) or "")
    return found.group(1) if found else ""


def parse_setting(text: str) -> str:
    """Read the setting; raises ValueError."""
    if text == AUTO or (text.startswith("/") and ".." not in text.split("/")):
        return text
    raise ValueError(text)
