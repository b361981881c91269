# SPDX-License-Identifier: Apache-2.0
"""Build the cluster's binaries from the Go modules beside this package.

go.sum pins every source by hash. A target is skipped while the hash of its inputs (the module's
files and the build's flags) is the one that its binaries were built from.

It needs nothing but Python and Go, so that it can begin before any library is installed:
`python -m gpupack_devcluster.build FOLDER [TARGET...]`.
"""

import hashlib
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpupack_devcluster.commands import run
from gpupack_devcluster.errors import BuildFailed, DevclusterError, ToolMissing, UnknownName
from gpupack_devcluster.timing import logger, phase

MODULES = Path(__file__).resolve().parent.parent


def required(folder: str, module: str) -> str:
    """Return the version of a Go module, such as v1.2.3, that a go.mod of ours requires.

    Raises:
        BuildFailed: it requires no such module.
    """
    path = MODULES / folder / "go.mod"
    found = re.search(rf"^\s*{re.escape(module)} (v\S+)$", path.read_text(), re.MULTILINE)
    if not found:
        raise BuildFailed(f"{path} requires no {module}")
    return found[1]


KUBERNETES = required("go", "k8s.io/kubernetes")
"""The one place that says it is go.mod; what cannot read that is held to it by a test."""
CONTAINERD = required("go-tools", "github.com/containerd/containerd/v2")
TOLD_EVERY_SECONDS = 10
COMPONENTS = (
    "coredns",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
)
# What `node-initialize` and its like do is data of the kwok module; without `pod-complete`, which
# would end every Job's pod at once.
KWOK_STAGES = (
    "kustomize/stage/node/fast/node-initialize.yaml",
    "kustomize/stage/node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "kustomize/stage/pod/fast/pod-ready.yaml",
)


@dataclass(frozen=True)
class Target:
    """Binaries that are built together."""

    name: str
    module: str
    """Folder of the Go module."""
    packages: Mapping[str, str]
    """Binary -> Go package."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Versions that the linker writes: without them they read v0.0.0."""
    links: tuple[str, ...] = ()
    """Other names of the (only) binary."""
    stages: tuple[str, ...] = field(default=(), repr=False)
    """Files of kwok's module that say what becomes of simulated nodes and pods. Not in the repr, by
    which targets without any would be built anew."""


TARGETS = {
    target.name: target
    for target in (
        Target(
            name="kube",
            module="go",
            packages={"kube": ".", "pause": "./pause"},
            variables={
                "k8s.io/component-base/version.gitVersion": KUBERNETES,
                "k8s.io/component-base/version.gitMajor": "1",
                "k8s.io/component-base/version.gitMinor": KUBERNETES.split(".")[1],
            },
            links=COMPONENTS,
        ),
        Target(
            name="containerd",
            module="go-tools",
            packages={
                "containerd": "github.com/containerd/containerd/v2/cmd/containerd",
                "containerd-shim-runc-v2": (
                    "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"
                ),
                "ctr": "github.com/containerd/containerd/v2/cmd/ctr",
                "image-seed": "./image-seed",
            },
            variables={"github.com/containerd/containerd/v2/version.Version": CONTAINERD},
        ),
        Target("helm", module="go-tools", packages={"helm": "helm.sh/helm/v3/cmd/helm"}),
        Target(
            "kwok",
            module="go-tools",
            packages={"kwok": "sigs.k8s.io/kwok/cmd/kwok"},
            stages=KWOK_STAGES,
        ),
        Target(
            "kubeconform",
            module="go-tools",
            packages={"kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform"},
        ),
    )
}


def build(binaries: Path, names: Sequence[str] = ()) -> None:
    """Build what is out of date: of these targets, or of all."""
    for name in names:
        if name not in TARGETS:
            raise UnknownName(f"no target {name!r}: {', '.join(TARGETS)}")
    for name in names or TARGETS:
        build_target(TARGETS[name], binaries)


def build_target(target: Target, binaries: Path) -> None:
    """Build one target unless its binaries are of its inputs."""
    stamp = binaries / f".{target.name}.stamp"
    inputs = hash_inputs(target, MODULES / target.module)
    complete = all((binaries / name).exists() for name in (*target.packages, *target.links))
    if complete and stamp.exists() and stamp.read_text() == inputs:
        logger.info("        %s is up to date", target.name)
        return
    binaries.mkdir(parents=True, exist_ok=True)
    with phase(f"{target.name} built"):
        for binary, package in target.packages.items():
            compile_package(target, package, binaries / binary)
        for link in target.links:
            make_link(binaries / link, next(iter(target.packages)))
        if target.stages:
            write_kwok_stages(target.stages, binaries / "kwok-stages.yaml")
    stamp.write_text(inputs)


def hash_inputs(target: Target, module: Path) -> str:
    """Hash of all that a target is made from."""
    digest = hashlib.sha256("".join((repr(target), *target.stages)).encode())
    sources = [module / "go.mod", module / "go.sum", *sorted(module.rglob("*.go"))]
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()


def compile_package(target: Target, package: str, output: Path) -> None:
    """Run the Go compiler; the binary appears only when it is whole."""
    fresh = output.with_suffix(".new")
    command = ["go", "build", "-v", *flags(target), "-o", str(fresh), package]
    try:
        process = subprocess.Popen(
            command,
            cwd=MODULES / target.module,
            env=go_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    except FileNotFoundError as error:
        raise ToolMissing("no Go compiler: install Go 1.21 or newer") from error
    with process:
        said = "".join(told(target.name, process.stdout or ()))
    if process.returncode != 0:
        raise BuildFailed(f"{' '.join(command)} failed:\n{said[-2000:]}")
    fresh.replace(output)


def go_environment() -> dict[str, str]:
    """Variables of Go's, with which any since 1.21 fetches the one that go.mod names."""
    ours = {"GOTOOLCHAIN": "auto", "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}
    return {**os.environ, **ours}


def told(name: str, lines: Iterable[str]) -> Iterator[str]:
    """Pass on what the compiler says, and log now and then how many packages it has named."""
    compiled, next_seconds = 0, time.monotonic() + TOLD_EVERY_SECONDS
    for line in lines:
        yield line
        compiled += not line.startswith(("go: ", "#", "\t"))
        if time.monotonic() >= next_seconds:
            next_seconds = time.monotonic() + TOLD_EVERY_SECONDS
            logger.info("        %s: %d packages compiled", name, compiled)


def flags(target: Target) -> list[str]:
    """Static, small and reproducible.

    What debuggers need is not even compiled: that is a quarter of the compiler's time.
    """
    variables = [f"-X {name}={value}" for name, value in target.variables.items()]
    return [
        "-trimpath",
        "-gcflags=all=-dwarf=false",
        "-tags=no_aufs,no_zfs,no_btrfs,no_devmapper",
        f"-ldflags={' '.join(['-s', '-w', *variables])}",
    ]


def make_link(link: Path, binary: str) -> None:
    """Point a name at a binary of the same folder."""
    link.unlink(missing_ok=True)
    link.symlink_to(binary)


def write_kwok_stages(wanted: Sequence[str], output: Path) -> None:
    """Collect stages from kwok's module, whose version go.sum pins."""
    module_folder = MODULES / "go-tools"
    command = ["go", "-C", str(module_folder), "list", "-m", "-f={{.Dir}}", "sigs.k8s.io/kwok"]
    module = run(command, environment=go_environment())
    stages = [(Path(module.strip()) / stage).read_text() for stage in wanted]
    output.write_text("---\n".join(stages))


def main(arguments: Sequence[str]) -> int:
    """Build into a folder: all targets, or those that are named; returns the exit status."""
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
