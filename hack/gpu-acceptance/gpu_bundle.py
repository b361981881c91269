# SPDX-License-Identifier: Apache-2.0
"""Packs what `make demo-gpu` needs on a host without downloads, and unpacks it there.

Packed: our binaries, this host's runc, ip, nft and CNI plugins, the locked libraries for the other
host's Python, the chart's manifests, and the commit. Not packed, because they are large and exist
there: NVIDIA's driver, a Python with torch and Triton (and so NumPy), gcc.

Programs that need libraries are packed with them and with their dynamic loader, and a script starts
the program by the loader. runc executes itself again, so it cannot use a loader: it uses the host's
libseccomp, which every Debian and Ubuntu has (apt needs it).
"""

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from gpupack_devcluster.build import KUBERNETES

ROOT = Path(__file__).resolve().parents[2]
DEV = ROOT / ".dev"
BUNDLE = DEV / "gpu-bundle"
SITE = DEV / "site"
COMPILED = ("kube", "containerd", "containerd-shim-runc-v2", "image-seed", "pause")
BINARIES = (
    *COMPILED,
    *("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "coredns"),
    *("kubelet", "kube-proxy"),
)
NATIVE_TOOLS = ("runc",)
WRAPPED_TOOLS = ("ip", "nft")
CNI = ("ptp", "host-local", "loopback", "portmap")
CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
TOOL_FOLDERS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LOCKS = ("requirements-services", *(f"{part}/requirements" for part in ("agent", "extender")))
OTHER_LIBRARIES = ("cffi", "click", "cryptography", "pycparser", "pyyaml", "tenacity")
FOUND_THERE = ("numpy",)
# The demo does not use mpirun.
NOT_USED = ("mpi4py", "openmpi")
PYTHON = "3.12"
GLIBC = (5, 12, 17, 24, 26, 27, 28, 31, 34, 35)
WRAPPER = """\
#!/bin/sh
here=$(dirname "$0")/carried
exec "$here/{loader}" --library-path "$here" "$here/{name}" "$@"
"""
BLOCK = "144MiB"
"""Block that one core compresses; smaller blocks make the bundle larger."""
XZ = (
    *("xz", "--threads=0", f"--block-size={BLOCK}"),
    *("--x86", f"--lzma2=preset=9,dict={BLOCK}", "--stdout"),
)


def pack(python: str = PYTHON) -> Path:
    """Write the bundle and return the archive; parts with the same inputs are reused."""
    BUNDLE.mkdir(parents=True, exist_ok=True)
    tools = pack_part("tools", tool_inputs(), stage_tools)
    lock = filter_lock((ROOT / "requirements-dev.lock").read_text(), wanted_libraries())
    requirements = BUNDLE / "requirements.txt"
    requirements.write_text(f"# for Python {python}\n{lock}")
    site = pack_part("site", [requirements], lambda folder: stage_site(folder, python))
    (BUNDLE / "manifests.yaml").write_text(render_chart())
    facts = {"python": python, "commit": output("git", "rev-parse", "--short", "HEAD")}
    (BUNDLE / "facts.json").write_text(json.dumps(facts, indent=1))
    carried = [tools, site, BUNDLE / "manifests.yaml", BUNDLE / "facts.json"]
    archive = DEV / "gpu-bundle.tar"
    run("git", "archive", "--prefix=gpupack/", f"--output={archive}", "HEAD")
    names = [str(path.relative_to(ROOT)) for path in carried]
    run("tar", "-C", str(ROOT), "--transform=s,^,gpupack/,", "-rf", str(archive), "--", *names)
    for path in (*carried, archive):
        print(f"  {path.stat().st_size / 2**20:6.1f} MiB  {path.relative_to(ROOT)}")
    return archive


def unpack() -> None:
    """Unpack the bundle: binaries to .dev/bin, libraries to .dev/site."""
    work = []
    for part, folder in (("tools", DEV / "bin"), ("site", SITE)):
        folder.mkdir(parents=True, exist_ok=True)
        command = ["tar", "-C", str(folder), "-xJf", str(BUNDLE / f"{part}.tar.xz")]
        work.append(subprocess.Popen(command))
    statuses = [process.wait() for process in work]
    if any(statuses):
        raise SystemExit("the bundle cannot be unpacked: is xz installed, is the disk full?")
    # Containers cannot write bytecode to their libraries; compilation at each start takes seconds.
    compiling = [sys.executable, "-m", "compileall", "-q", "-j", "0", str(SITE)]
    subprocess.run(compiling, stdout=subprocess.DEVNULL, check=False)


def is_carried() -> bool:
    """Return whether this checkout came with a bundle and has no build of its own."""
    return (BUNDLE / "facts.json").exists() and not (DEV / "venv").exists()


def tool_inputs() -> list[Path]:
    """Return the programs that go into the bundle."""
    compiled = [DEV / "bin" / name for name in COMPILED]
    return [*compiled, *(find(name) for name in (*NATIVE_TOOLS, *WRAPPED_TOOLS))]


def pack_part(name: str, inputs: Sequence[Path], stage: Callable[[Path], None]) -> Path:
    """Write one compressed part unless one with the same inputs exists."""
    archive, stamp = BUNDLE / f"{name}.tar.xz", BUNDLE / f".{name}.stamp"
    digest = digest_of(inputs)
    if archive.exists() and stamp.exists() and stamp.read_text() == digest:
        return archive
    folder = BUNDLE / "staging" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    stage(folder)
    compress(folder, archive)
    stamp.write_text(digest)
    shutil.rmtree(folder)
    return archive


def stage_tools(folder: Path) -> None:
    """Copy the programs into a folder."""
    for name in BINARIES:
        shutil.copy2(DEV / "bin" / name, folder / name, follow_symlinks=False)
    # As a program of its own it starts faster, and would be 12 MB more to carry.
    (folder / "kubectl").symlink_to("kube")
    for name in NATIVE_TOOLS:
        shutil.copy2(find(name), folder / name)
    (folder / "cni").mkdir()
    plugins = next(path for path in CNI_FOLDERS if (path / CNI[0]).exists())
    for name in CNI:
        shutil.copy2(plugins / name, folder / "cni" / name)
    (folder / "carried").mkdir()
    for name in WRAPPED_TOOLS:
        wrap(find(name), folder)


def wrap(program: Path, folder: Path) -> None:
    """Copy a program with its libraries and loader, and write the script that starts it."""
    libraries = libraries_of(output("ldd", str(program)))
    for path in (program, *libraries):
        shutil.copy2(path.resolve(), folder / "carried" / path.name)
    loader = next(path.name for path in libraries if path.name.startswith("ld-linux"))
    script = folder / program.name
    script.write_text(WRAPPER.format(loader=loader, name=program.name))
    script.chmod(0o755)


def libraries_of(listing: str) -> list[Path]:
    """Parse ldd's output: `NAME => PATH (ADDRESS)`, and the loader without an arrow."""
    words = (line.split() for line in listing.splitlines())
    return [
        Path(next(word for word in line if word.startswith("/")))
        for line in words
        if any(word.startswith("/") for word in line)
    ]


def stage_site(folder: Path, python: str) -> None:
    """Install the locked libraries for the other host's Python."""
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in GLIBC]
    platforms += ["--platform=manylinux2014_x86_64", "--platform=manylinux1_x86_64"]
    version = [f"--python-version={python}", "--implementation=cp", "--only-binary=:all:"]
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--no-deps"]
    lock = ["--require-hashes", "-r", str(BUNDLE / "requirements.txt")]
    run(*install, *version, *platforms, f"--target={folder}", *lock)
    for path in folder.rglob("*.pyi"):
        path.unlink()
    libraries = [str(path) for path in folder.rglob("*.so")]
    if shutil.which("strip"):  # 12 MB of one library are symbols for debuggers
        run("strip", "--strip-unneeded", *libraries)


def wanted_libraries() -> set[str]:
    """Return the libraries of services and dev cluster, without those found or unused there."""
    locks = [ROOT / f"{name}.lock" for name in (*LOCKS, "operator/requirements")]
    locks.append(ROOT / "workloads/requirements.lock")
    names = {name for lock in locks for name in locked_names(lock.read_text())}
    return (names | set(OTHER_LIBRARIES)) - {*FOUND_THERE, *NOT_USED}


def locked_names(lock: str) -> list[str]:
    """Return the names in a lock file: lines that begin with `NAME==`."""
    starts = (line for line in lock.splitlines() if line[:1].isalnum())
    return [line.partition("==")[0] for line in starts]


def filter_lock(lock: str, names: Iterable[str]) -> str:
    """Return the entries of some libraries with their hashes."""
    wanted, kept, keep = set(names), [], False
    for line in lock.splitlines():
        if line[:1].isalnum():
            keep = line.partition("==")[0] in wanted
        if keep and not line.startswith("#"):
            kept.append(line)
    return "\n".join(kept) + "\n"


def render_chart() -> str:
    """Return the chart's manifests, without the certificate, which the other host creates."""
    values = ["-f", "charts/gpupack/values-gpu.yaml"]
    values += ["--set", "scheduler.tls.existingSecret=gpupack-extender-tls"]
    helm = [str(DEV / "bin" / "helm"), "template", "gpupack", "charts/gpupack"]
    return output(*helm, "-n", "gpupack-system", "--kube-version", KUBERNETES, *values)


def compress(folder: Path, archive: Path) -> None:
    """Write a tar archive with xz; the dictionary is large because the Go binaries share much code.

    xz's preset `9e` instead of `9` makes it 0.2 % smaller.
    """
    fresh = archive.with_suffix(".new")
    tar = ["tar", "-C", str(folder), "--sort=name", "--owner=0", "--group=0", "-cf", "-", "."]
    with fresh.open("wb") as target, subprocess.Popen(tar, stdout=subprocess.PIPE) as source:
        done = subprocess.run(XZ, stdin=source.stdout, stdout=target, check=False)
    if done.returncode or source.returncode:
        raise SystemExit(f"{archive} could not be made")
    fresh.replace(archive)


def find(program: str) -> Path:
    """Return the path of a program of this host."""
    path = shutil.which(program, path=TOOL_FOLDERS)
    if path is None:
        raise SystemExit(f"{program} is not installed: run `make host`")
    return Path(path)


def digest_of(paths: Iterable[Path]) -> str:
    """Return a digest of files' contents and of the code that processes them."""
    recipe = (BINARIES, NATIVE_TOOLS, WRAPPED_TOOLS, WRAPPER, CNI, XZ, GLIBC)
    digest = hashlib.sha256(repr(recipe).encode())
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def output(*command: str) -> str:
    """Return a program's output; exit with its error output if it fails."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)[:200]} failed: {done.stderr.strip()[-1000:]}")
    return done.stdout.strip()


def run(*command: str) -> None:
    """Run a program; exit with its error output if it fails."""
    output(*command)


if __name__ == "__main__":
    pack(*sys.argv[1:])
