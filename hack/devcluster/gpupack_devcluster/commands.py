# SPDX-License-Identifier: Apache-2.0
"""Runner of the host's programs, with failures as text."""

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gpupack_devcluster.errors import CommandFailed, NotRoot, ToolMissing

DEBIAN_PACKAGE = {
    "ip": "iproute2",
    "nft": "nftables",
    "runc": "runc",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setsid": "util-linux",
    "mount": "mount",
}
CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
CARRIED_CNI = "cni"
CNI_PLUGINS = ("ptp", "host-local", "portmap", "loopback")


def run(
    command: Sequence[str | Path],
    *,
    text_input: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a program and return its standard output."""
    words = [str(word) for word in command]
    try:
        result = subprocess.run(
            words, input=text_input, env=environment, capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise ToolMissing(f"program {words[0]} is not installed") from error
    if result.returncode != 0:
        last_words = (result.stderr or result.stdout).strip()[-800:]
        raise CommandFailed(f"{' '.join(words)[:200]} failed ({result.returncode}): {last_words}")
    return result.stdout


def succeeds(command: Sequence[str | Path]) -> bool:
    """Return whether a program succeeds; its output is discarded."""
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def require_root() -> None:
    """Refuse to continue without root, with one line."""
    if os.geteuid() != 0:
        raise NotRoot("this needs root (namespaces, mounts, cgroups): run it with sudo")


def require_tools(binaries: Path) -> None:
    """Check all of the host's programs, and name the packages of missing ones.

    A folder of binaries that was copied here may contain them too.
    """
    missing = [name for name in DEBIAN_PACKAGE if find_tool(name, binaries) is None]
    packages = {DEBIAN_PACKAGE[name] for name in missing}
    if find_cni_folder(binaries) is None:
        missing.append("CNI plugins")
        packages.add("containernetworking-plugins")
    if missing:
        install = " ".join(sorted(packages))
        raise ToolMissing(f"not installed: {', '.join(missing)}: apt-get install {install}")


def require_binaries(folder: Path, names: Iterable[str]) -> None:
    """Check that `build` has run."""
    missing = [name for name in names if not (folder / name).exists()]
    if missing:
        raise ToolMissing(f"{folder} lacks {', '.join(missing)}: run `gpupack-devcluster build`")


def find_tool(name: str, binaries: Path) -> str | None:
    """Return the path of a program: among our binaries, or else on the host."""
    return shutil.which(name, path=f"{binaries}:{os.environ.get('PATH', os.defpath)}")


def find_cni_folder(binaries: Path) -> Path | None:
    """Return the folder with all plugins that a node needs: a copied one, or else the host's."""
    folders = (binaries / CARRIED_CNI, *CNI_FOLDERS)
    found = (f for f in folders if all((f / name).exists() for name in CNI_PLUGINS))
    return next(found, None)


def cni_folder(binaries: Path) -> Path:
    """Return the folder with the CNI plugins."""
    folder = find_cni_folder(binaries)
    if folder is None:
        raise ToolMissing("no CNI plugins: apt-get install containernetworking-plugins")
    return folder
