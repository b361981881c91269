# SPDX-License-Identifier: Apache-2.0
"""The command as a plugin for krew: `python client/cli/krew.py VERSION WHEELS FOLDER URL`.

WHEELS is a folder of gpupack's wheels, such as .dev/wheels after `make wheels`. Writes into FOLDER
the archive gpupack-VERSION-OS-ARCH.tar.gz, with the command and all its imports, for the present
Python and platform, and gpupack.yaml, krew's manifest, with the checksum of the archive and its
address URL/ARCHIVE.
"""

import gzip
import hashlib
import io
import pathlib
import platform
import subprocess
import sys
import tarfile
import tempfile
from typing import Any, Final

import yaml

ROOT: Final = pathlib.Path(__file__).parents[2]
ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64", "AMD64": "amd64"}
PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"

LAUNCHER: Final = f"""#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
here=$(dirname "$(readlink -f "$0")")
if ! command -v python{PYTHON} >/dev/null; then
  echo "gpupack: this plugin needs python{PYTHON} on PATH" >&2
  exit 70
fi
exec python{PYTHON} -I -c '
import sys
sys.path.insert(0, sys.argv.pop(1))
sys.argv[0] = "kubectl-gpupack"
from gpupack_cli.main import main
main()
' "$here/lib" "$@"
"""


def system() -> tuple[str, str]:
    """Return operating system and architecture by krew's names."""
    machine = platform.machine()
    return platform.system().lower(), ARCHITECTURES.get(machine, machine)


def install(version: str, wheels: pathlib.Path, folder: pathlib.Path) -> None:
    """Install the command and its imports below `folder`/lib, and write its launcher."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    options = ["--target", str(folder / "lib"), "--find-links", str(wheels)]
    if (locked := wheels / "constraints.txt").exists():
        options += ["--constraint", str(locked)]
    subprocess.run([*pip, *options, f"gpupack-cli=={version}"], check=True)  # noqa: S603 - a list
    launcher = folder / "kubectl-gpupack"
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o755)
    (folder / "LICENSE").write_bytes((ROOT / "LICENSE").read_bytes())


def create_archive(folder: pathlib.Path) -> bytes:
    """Return the folder as .tar.gz, reproducible byte for byte."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(folder.rglob("*")):
            if "__pycache__" not in path.parts and path.is_file():
                tar.addfile(_entry(path, folder), io.BytesIO(path.read_bytes()))
    return gzip.compress(packed.getvalue(), mtime=0)


def _entry(path: pathlib.Path, folder: pathlib.Path) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(str(path.relative_to(folder)))
    entry.size = path.stat().st_size
    entry.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
    return entry


def build_manifest(version: str, archive: bytes, address: str) -> dict[str, Any]:
    """Return krew's manifest."""
    os_name, architecture = system()
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "gpupack"},
        "spec": {
            "version": f"v{version}",
            "shortDescription": "Show a cluster's GPUs and queue, and run jobs",
            "description": "Shows nodes, GPUs, jobs and the queue of a cluster that gpupack "
            "schedules, runs commands as GPUJobs, and checks the installation.\n",
            "caveats": f"The plugin needs python{PYTHON} on PATH.\n",
            "platforms": [
                {
                    "selector": {"matchLabels": {"os": os_name, "arch": architecture}},
                    "uri": address,
                    "sha256": hashlib.sha256(archive).hexdigest(),
                    "bin": "kubectl-gpupack",
                }
            ],
        },
    }


def main() -> None:
    """Build the archive and the manifest."""
    if len(sys.argv) != 5:  # noqa: PLR2004 - as the first line says
        sys.exit(__doc__)
    version, wheels, out, url = sys.argv[1:]
    name = f"gpupack-{version}-{'-'.join(system())}.tar.gz"
    with tempfile.TemporaryDirectory() as folder:
        install(version, pathlib.Path(wheels).resolve(), pathlib.Path(folder))
        archive = create_archive(pathlib.Path(folder))
    target = pathlib.Path(out)
    target.mkdir(parents=True, exist_ok=True)
    (target / name).write_bytes(archive)
    text = yaml.safe_dump(
        build_manifest(version, archive, f"{url.rstrip('/')}/{name}"), sort_keys=False
    )
    (target / "gpupack.yaml").write_text(text)


if __name__ == "__main__":
    main()
