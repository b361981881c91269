# SPDX-License-Identifier: Apache-2.0
"""The host's settings for downloads that a build needs: mirrors, proxies, certificates.

The settings reach the build as secrets, files under /run/secrets while a layer is built, so neither
the repository nor an image keeps them. Every secret is always given, empty when the host has no
setting, because buildah refuses a secret that is missing.

apt's sources are used only from a host of the images' own release; another release's would not fit,
and the base image then has its own.
"""

import ast
import platform
import re
import shlex
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
# Settings of pip that are valid inside a container.
PIP_KEYS = frozenset(
    ("extra-index-url", "index-url", "no-index", "proxy", "retries", "timeout", "trusted-host")
)
# Variables of uv, which does not read pip's settings, with the same effect.
UV_VARIABLES = {
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "index-url": "UV_DEFAULT_INDEX",
    "no-index": "UV_NO_INDEX",
    "proxy": "ALL_PROXY",
    "retries": "UV_HTTP_RETRIES",
    "timeout": "UV_HTTP_TIMEOUT",
    "trusted-host": "UV_INSECURE_HOST",
}
# Settings of npm that are valid inside a container, and the prefix of a registry's settings.
NPM_KEYS = frozenset(
    ("fetch-retries", "fetch-timeout", "https-proxy", "noproxy", "proxy", "registry", "strict-ssl")
)
NPM_REGISTRY = "//"
NPM_VARIABLE = "npm_config_"
# Settings of apt that are valid inside a container; paths of certificates are not.
APT_PREFIXES = ("Acquire::http", "Acquire::Check", "Acquire::Retries", "Acquire::ForceIPv4")


@dataclass(frozen=True)
class HostSettings:
    """The host's settings for downloading."""

    pip: Mapping[str, str]
    npm: Mapping[str, str]
    apt: tuple[str, ...]
    apt_sources: Mapping[str, Path]
    ca_bundle: Path | None


def read_host(environ: Mapping[str, str]) -> HostSettings:
    """Read this host's settings for downloads from pip, apt, npm's file and the environment."""
    pip = parse_pip_config(_output(sys.executable, "-m", "pip", "config", "list"))
    return HostSettings(
        pip={key: value for key, value in pip.items() if key in PIP_KEYS},
        npm=select_npm_settings(_npm_file(environ), environ),
        apt=select_apt_options(_output("apt-config", "dump", "Acquire")),
        apt_sources=_apt_sources(),
        ca_bundle=find_ca_bundle(pip, environ),
    )


def parse_pip_config(listing: str) -> dict[str, str]:
    """Parse `pip config list`: `section.key='value'`; the environment's values win."""
    pairs = [line.split("=", 1) for line in listing.splitlines() if "=" in line]
    pairs.sort(key=lambda pair: pair[0].startswith(":env:"))
    return {name.rpartition(".")[2]: str(ast.literal_eval(value)) for name, value in pairs}


def select_npm_settings(text: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what a container can use of an .npmrc and of npm's variables, which win.

    npm itself need not be installed. As in npm, ${NAME} becomes the variable's value.
    """
    lines = [line.split("=", 1) for line in text.splitlines() if "=" in line]
    written = {name.strip(): _expanded(value.strip(), environ) for name, value in lines}
    said = {
        name.lower().removeprefix(NPM_VARIABLE).replace("_", "-"): value
        for name, value in environ.items()
        if name.lower().startswith(NPM_VARIABLE)
    }
    return {
        name: value
        for name, value in (written | said).items()
        if name in NPM_KEYS or name.startswith(NPM_REGISTRY) or name.endswith(":registry")
    }


def select_apt_options(dump: str) -> tuple[str, ...]:
    """Return the lines of `apt-config dump` that a container can use."""
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
    certificates = f"{MOUNT}/ca.crt" if host.ca_bundle else None
    texts["uv.env"] = render_uv_environment(host.pip, certificates)
    texts["npmrc"] = render_npm_config(host)
    texts["apt.conf"] = render_apt_config(host)
    for name, text in texts.items():
        (folder / name).write_text(text)
    return {name: folder / name for name in texts}


def render_pip_config(host: HostSettings) -> str:
    """Return pip's settings for the inside of the build."""
    settings = {"disable-pip-version-check": "1", **host.pip}
    if host.ca_bundle:
        settings["cert"] = f"{MOUNT}/ca.crt"
    lines = (f"{key} = {' '.join(value.split())}\n" for key, value in sorted(settings.items()))
    return "[global]\n" + "".join(lines)


def render_uv_environment(pip: Mapping[str, str], certificates: str | None) -> str:
    """Return pip's settings as assignments of uv's variables, which a shell can source."""
    variables = {
        UV_VARIABLES[key]: " ".join(value.split())
        for key, value in pip.items()
        if key in UV_VARIABLES
    }
    if "extra-index-url" in pip:
        # As with pip, every index may provide a version: all are locked by hash.
        variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    if certificates:
        variables["SSL_CERT_FILE"] = certificates
    lines = (f"export {name}={shlex.quote(value)}\n" for name, value in sorted(variables.items()))
    return "".join(lines)


def read_uv_environment(environ: Mapping[str, str]) -> str:
    """Return this host's pip settings as uv's variables."""
    pip = parse_pip_config(_output(sys.executable, "-m", "pip", "config", "list"))
    bundle = find_ca_bundle(pip, environ)
    return render_uv_environment(pip, str(bundle) if bundle else None)


def render_npm_config(host: HostSettings) -> str:
    """Return npm's settings for the inside of the build."""
    settings = dict(host.npm)
    if host.ca_bundle:
        settings["cafile"] = f"{MOUNT}/ca.crt"
    return "".join(f"{key}={value}\n" for key, value in sorted(settings.items()))


def render_apt_config(host: HostSettings) -> str:
    """Return apt's settings for the inside of the build."""
    lines = list(host.apt)
    if host.ca_bundle:
        lines.append(f'Acquire::https::CAInfo "{MOUNT}/ca.crt";')
    if host.apt_sources:
        lines.append('Dir::Etc::sourcelist "/dev/null";')
        lines.append(f'Dir::Etc::sourceparts "{MOUNT}";')
    return "".join(f"{line}\n" for line in lines)


def _npm_file(environ: Mapping[str, str]) -> str:
    """Return the content of the user's .npmrc; nothing where there is none."""
    named = environ.get("NPM_CONFIG_USERCONFIG") or environ.get("npm_config_userconfig")
    path = Path(named) if named else Path(environ.get("HOME", "/")) / ".npmrc"
    return path.read_text() if path.is_file() else ""


def _expanded(value: str, environ: Mapping[str, str]) -> str:
    return re.sub(r"\$\{([^}]+)\}", lambda found: environ.get(found[1], found[0]), value)


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
