# SPDX-License-Identifier: Apache-2.0
"""The base image where no registry can be reached: Debian packages under the same name.

The result equals debian:bookworm-slim: the packages of the smallest variant, without documentation.
It holds no host data: no resolver, no host name and, where the host's own package sources were
used, no sources at all (builds bring them as a secret).
"""

from pathlib import Path

from gpupack_images.catalog import BASE
from gpupack_images.engines import Engine
from gpupack_images.host import RELEASE, HostSettings
from gpupack_images.shell import Shell, as_root

LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
TRACES = ("etc/resolv.conf", "etc/hostname", "etc/apt/apt.conf.d/99mmdebstrap")


def ensure_base(engine: Engine, *, host: HostSettings, shell: Shell, state: Path) -> str:
    """Provide the base image in the engine's store; return where it came from."""
    if engine.has(BASE):
        return "there"
    if engine.pull(BASE):
        return "pulled"
    archive = state / "base.tar"
    shell.run(*as_root(*bootstrap_command(host, archive)))
    engine.adopt(BASE, archive)
    archive.unlink()
    return "made from Debian packages"


def bootstrap_command(host: HostSettings, archive: Path) -> tuple[str, ...]:
    """Return the mmdebstrap command that writes the base's file system to an archive."""
    sources = [str(path) for path in host.apt_sources.values()]
    traces = [*TRACES, *(("etc/apt/sources.list", "etc/apt/sources.list.d/*") if sources else ())]
    removal = " ".join(f'"$1"/{path}' for path in traces)
    return (
        *("mmdebstrap", "--quiet", "--mode=root", "--variant=minbase"),
        *(f"--dpkgopt=path-exclude={path}" for path in LEFT_OUT),
        *(f"--aptopt={option}" for option in host.apt),
        f"--customize-hook=rm -f {removal}",
        *(RELEASE, str(archive), *sources),
    )
