# SPDX-License-Identifier: Apache-2.0
"""What a build needs to know of the host in order to download: mirrors, proxies, certificates.

The host's settings reach the build as secrets, files under /run/secrets while a layer is made, so
neither the repository nor an image keeps them. Every secret is always given, empty when the host
has nothing to say, because buildah refuses a secret that is not there.

apt's sources are taken over only from a host of the images' own release; another host's would not
fit, and the base image then has its own.
"""

import ast
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

RELEASE = "bookworm"
MOUNT = "/run/secrets"
APT_FILES = {
    "apt.list": Path("/etc/apt/sources.list"),
    "apt.sources": Path("/etc/apt/sources.list.d/debian.sources"),
}
# Settings of pip that mean the same inside a container.
PIP_KEYS = frozenset(
    ("extra-index-url", "index-url", "no-index", "proxy", "retries", "timeout", "trusted-host")
)
# Settings of apt that mean the same inside a container; paths of certificates do not.
APT_PREFIXES = ("Acquire::http", "Acquire::Check", "Acquire::Retries", "Acquire::ForceIPv4")


@dataclass(frozen=True)
class HostSettings:
    """The host's settings for downloading."""

    pip: Mapping[str, str]
    apt: tuple[str, ...]
    apt_sources: Mapping[str, Path]
    ca_bundle: Path | None


def read_host(environ: Mapping[str, str]) -> HostSettings:
    """Ask pip, apt and the environment how this host downloads."""
    pip = parse_pip_config(_output(sys.executable, "-m", "pip", "config", "list"))
    return HostSettings(
        pip={key: value for key, value in pip.items() if key in PIP_KEYS},
        apt=select_apt_options(_output("apt-config", "dump", "Acquire")),
        apt_sources=_apt_sources(),
        ca_bundle=find_ca_bundle(pip, environ),
    )


def parse_pip_config(listing: str) -> dict[str, str]:
    """Read `pip config list`: `section.key='value'`; the environment's values win."""
    pairs = [line.split("=", 1) for line in listing.splitlines() if "=" in line]
    pairs.sort(key=lambda pair: pair[0].startswith(":env:"))
    return {name.rpartition(".")[2]: str(ast.literal_eval(value)) for name, value in pairs}


def select_apt_options(dump: str) -> tuple[str, ...]:
    """Keep the lines of `apt-config dump` that a container can use."""
    return tuple(
        line
        for line in dump.splitlines()
        if line.startswith(APT_PREFIXES) and '""' not in line and '"/' not in line
    )


def find_ca_bundle(pip: Mapping[str, str], environ: Mapping[str, str]) -> Path | None:
    """Return the certificates that the host's own clients trust, where it names any."""
    named = (pip.get("cert"), environ.get("SSL_CERT_FILE"), environ.get("REQUESTS_CA_BUNDLE"))
    return next((Path(name) for name in named if name and Path(name).is_file()), None)


def write_secrets(host: HostSettings, folder: Path) -> dict[str, Path]:
    """Write the secrets of the build; return them by their names in the Dockerfile."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    texts = dict.fromkeys(APT_FILES, "") | {
        name: path.read_text() for name, path in host.apt_sources.items()
    }
    texts["ca.crt"] = host.ca_bundle.read_text() if host.ca_bundle else ""
    texts["pip.conf"] = render_pip_config(host)
    texts["apt.conf"] = render_apt_config(host)
    for name, text in texts.items():
        (folder / name).write_text(text)
    return {name: folder / name for name in texts}


def render_pip_config(host: HostSettings) -> str:
    """Write pip's settings as they hold inside the build."""
    settings = {"disable-pip-version-check": "1", **host.pip}
    if host.ca_bundle:
        settings["cert"] = f"{MOUNT}/ca.crt"
    lines = (f"{key} = {' '.join(value.split())}\n" for key, value in sorted(settings.items()))
    return "[global]\n" + "".join(lines)


def render_apt_config(host: HostSettings) -> str:
    """Write apt's settings as they hold inside the build."""
    lines = list(host.apt)
    if host.ca_bundle:
        lines.append(f'Acquire::https::CAInfo "{MOUNT}/ca.crt";')
    if host.apt_sources:
        lines.append('Dir::Etc::sourcelist "/dev/null";')
        lines.append(f'Dir::Etc::sourceparts "{MOUNT}";')
    return "".join(f"{line}\n" for line in lines)


def _apt_sources() -> dict[str, Path]:
    try:
        release = platform.freedesktop_os_release().get("VERSION_CODENAME")
    except OSError:
        return {}
    if release != RELEASE:
        return {}
    return {name: path for name, path in APT_FILES.items() if path.is_file()}


def _output(*command: str) -> str:
    """Return what a program prints; nothing where the host does not have it."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
