# SPDX-License-Identifier: Apache-2.0
"""Build of the cluster's binaries from the Go module in the folder `go`.

There is one module and one call of the compiler: Kubernetes, containerd and helm have hundreds of
packages in common, which are compiled once, and no core idles while another one links.

go.sum pins every source by hash. A target is skipped while the hash of its inputs (the module's
files and the build's flags) equals the hash from which its binaries were built.

It needs only Python and Go, so that it can start before any library is installed: `python -m
gpupack_devcluster.build FOLDER [TARGET...]`.
"""

import hashlib
import logging
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpupack_devcluster.commands import run
from gpupack_devcluster.errors import BuildFailed, DevclusterError, ToolMissing, UnknownName
from gpupack_devcluster.timing import logger, phase

MODULE = Path(__file__).resolve().parent.parent / "go"
CONTROLLERS = MODULE.parent / "controllers"
"""A module for each controller of another project: each needs its own versions of Kubernetes'
libraries."""
LAUNCHER = MODULE.parents[2] / "agent/launcher"


def required(module: str) -> str:
    """Return the version of a Go module, such as v1.2.3, that go.mod requires.

    Raises:
        BuildFailed: go.mod does not require the module.
    """
    path = MODULE / "go.mod"
    found = re.search(rf"^\s*{re.escape(module)} (v\S+)$", path.read_text(), re.MULTILINE)
    if not found:
        raise BuildFailed(f"{path} requires no {module}")
    return found[1]


KUBERNETES = required("k8s.io/kubernetes")
"""Version from go.mod, the only source; a test compares files that cannot read it."""
CONTAINERD = required("github.com/containerd/containerd/v2")
VARIABLES = {
    "k8s.io/component-base/version.gitVersion": KUBERNETES,
    "k8s.io/component-base/version.gitMajor": "1",
    "k8s.io/component-base/version.gitMinor": KUBERNETES.split(".")[1],
    "github.com/containerd/containerd/v2/version.Version": CONTAINERD,
}
"""Versions that the linker writes; without them they are v0.0.0.

It skips those of other binaries.
"""
PROGRESS_SECONDS = 10
COMPONENTS = (
    "coredns",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubelet",
)
# The kwok module defines what `node-initialize` and the other stages do. `pod-complete` is left
# out, since it would end every Job's pod at once.
KWOK_STAGES = (
    "kustomize/stage/node/fast/node-initialize.yaml",
    "kustomize/stage/node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "kustomize/stage/pod/fast/pod-ready.yaml",
)


@dataclass(frozen=True)
class Target:
    """Binaries that are built together."""

    name: str
    packages: tuple[str, ...]
    """Go packages. A binary has the last part of its package's name."""
    links: tuple[str, ...] = ()
    """Other names of the first binary."""
    sources: Path | None = field(default=None, repr=False)
    """A folder with further Go files that the target is built from."""
    stages: tuple[str, ...] = field(default=(), repr=False)
    """Files of kwok's module that define the behaviour of simulated nodes and pods."""
    module: Path = field(default=MODULE, repr=False)
    """Folder of the Go module that the packages belong to."""
    binary: str = field(default="", repr=False)
    """Name of the only binary; empty: binaries are named by their packages."""

    @property
    def binaries(self) -> tuple[str, ...]:
        """Names of the binaries."""
        if self.binary:
            return (self.binary,)
        return tuple(package.rpartition("/")[2] for package in self.packages)


def controller(name: str, package: str) -> Target:
    """Return the target of a controller, which has a module of its own."""
    binary = f"controller-{name}"
    return Target(binary, packages=(package,), module=CONTROLLERS / name, binary=binary)


TARGETS = {
    target.name: target
    for target in (
        Target("kube", packages=("./kube", "./kubectl", "./pause"), links=COMPONENTS),
        Target(
            "containerd",
            packages=(
                "github.com/containerd/containerd/v2/cmd/containerd",
                "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
                "./image-seed",
            ),
        ),
        Target("launcher", packages=("gpupack.dev/launcher",), sources=LAUNCHER),
        Target("helm", packages=("helm.sh/helm/v3/cmd/helm",)),
        Target("ctr", packages=("github.com/containerd/containerd/v2/cmd/ctr",)),
        Target("kwok", packages=("sigs.k8s.io/kwok/cmd/kwok",), stages=KWOK_STAGES),
        Target("kubeconform", packages=("github.com/yannh/kubeconform/cmd/kubeconform",)),
        controller("jobset", "sigs.k8s.io/jobset"),
        controller("kueue", "sigs.k8s.io/kueue/cmd/kueue"),
        controller("kuberay", "github.com/ray-project/kuberay/ray-operator"),
        controller("lws", "sigs.k8s.io/lws/cmd"),
        controller("trainer", "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager"),
    )
}


def build(folder: Path, names: Sequence[str] = ()) -> None:
    """Build these targets, or all but the controllers, where they are out of date."""
    for name in names:
        if name not in TARGETS:
            raise UnknownName(f"no target {name!r}: {', '.join(TARGETS)}")
    targets = [TARGETS[name] for name in names or TARGETS if names or not TARGETS[name].binary]
    stale = [target for target in targets if not is_built(target, folder)]
    for target in targets:
        if target not in stale:
            logger.info("        %s is up to date", target.name)
    if stale:
        build_targets(stale, folder)


def is_built(target: Target, folder: Path) -> bool:
    """Return whether the folder has all binaries of a target, built from its present inputs."""
    stamp = folder / f".{target.name}.stamp"
    complete = all((folder / name).exists() for name in (*target.binaries, *target.links))
    return complete and stamp.exists() and stamp.read_text() == hash_inputs(target)


def build_targets(targets: Sequence[Target], folder: Path) -> None:
    """Compile targets, and write their stamps when all binaries, links and stages exist."""
    folder.mkdir(parents=True, exist_ok=True)
    with phase(f"{', '.join(target.name for target in targets)} built"):
        shared = [target for target in targets if not target.binary]
        if shared:
            compile_packages([each for target in shared for each in target.packages], folder)
        for target in targets:
            if target.binary:
                compile_packages(target.packages, folder, target.module, target.binary)
            for link in target.links:
                make_link(folder / link, target.binaries[0])
            if target.stages:
                write_kwok_stages(target.stages, folder / "kwok-stages.yaml")
            (folder / f".{target.name}.stamp").write_text(hash_inputs(target))


def hash_inputs(target: Target) -> str:
    """Return the hash of all inputs of a target."""
    digest = hashlib.sha256("".join((repr(target), *target.stages, *flags())).encode())
    module = target.module
    sources = [module / "go.mod", module / "go.sum", *sorted(module.rglob("*.go"))]
    if target.sources:
        sources += sorted(target.sources.glob("*.go"))
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()


def compile_packages(
    packages: Sequence[str], folder: Path, module: Path = MODULE, binary: str = ""
) -> None:
    """Run the Go compiler; binaries appear only when all are complete.

    `binary`: the name of the only binary; empty: binaries are named by their packages.
    """
    fresh = folder / ".new"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    command = ["go", "build", "-v", *flags(), "-o", f"{fresh}/{binary}", *packages]
    try:
        process = subprocess.Popen(
            command,
            cwd=module,
            env=go_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    except FileNotFoundError as error:
        raise ToolMissing("no Go compiler: install Go 1.21 or newer") from error
    with process:
        said = "".join(with_progress(process.stdout or ()))
    if process.returncode != 0:
        raise BuildFailed(f"{' '.join(command)} failed:\n{said[-2000:]}")
    for made in fresh.iterdir():
        made.replace(folder / made.name)
    fresh.rmdir()


def go_environment() -> dict[str, str]:
    """Return variables with which Go 1.21 or later fetches the version that go.mod names."""
    ours = {"GOTOOLCHAIN": "auto", "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}
    # The compiler collects its garbage less often, which saves a tenth of its time for some 100 MB.
    return {"GOGC": "400", **os.environ, **ours}


def with_progress(lines: Iterable[str]) -> Iterator[str]:
    """Pass on the compiler's output, and log now and then how many packages it has compiled."""
    compiled, next_seconds = 0, time.monotonic() + PROGRESS_SECONDS
    for line in lines:
        yield line
        compiled += not line.startswith(("go: ", "#", "\t"))
        if time.monotonic() >= next_seconds:
            next_seconds = time.monotonic() + PROGRESS_SECONDS
            logger.info("        %d packages compiled", compiled)


def flags() -> list[str]:
    """Return flags for static, small and reproducible binaries.

    Debug data is not even compiled, which saves a quarter of the compiler's time.
    """
    variables = [f"-X {name}={value}" for name, value in VARIABLES.items()]
    return [
        "-trimpath",
        "-gcflags=all=-dwarf=false",
        "-tags=no_aufs,no_zfs,no_btrfs,no_devmapper",
        f"-ldflags={' '.join(['-s', '-w', *variables])}",
    ]


def make_link(link: Path, binary: str) -> None:
    """Make a symbolic link to a binary of the same folder."""
    link.unlink(missing_ok=True)
    link.symlink_to(binary)


def write_kwok_stages(wanted: Sequence[str], output: Path) -> None:
    """Collect stages from kwok's module, whose version go.sum pins."""
    command = ["go", "-C", str(MODULE), "list", "-m", "-f={{.Dir}}", "sigs.k8s.io/kwok"]
    module = run(command, environment=go_environment())
    stages = [(Path(module.strip()) / stage).read_text() for stage in wanted]
    output.write_text("---\n".join(stages))


def main(arguments: Sequence[str]) -> int:
    """Build all targets, or those that are named, into a folder; return the exit status."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    folder, *names = arguments
    try:
        build(Path(folder).resolve(), names)
    except DevclusterError as error:
        logger.error("Error: %s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
