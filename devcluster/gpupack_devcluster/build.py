# SPDX-License-Identifier: Apache-2.0
"""Build the cluster's binaries from the Go modules beside this package.

go.sum pins every source by hash. A target is skipped while the hash of its inputs (the module's
files and the build's flags) is the one that its binaries were built from.
"""

import hashlib
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpupack_devcluster.commands import run
from gpupack_devcluster.errors import BuildFailed, ToolMissing, UnknownName
from gpupack_devcluster.timing import logger, phase

MODULES = Path(__file__).resolve().parent.parent
KUBERNETES = "v1.36.3"
CONTAINERD = "v2.3.4"
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
    "kustomize/stage/pod/fast/pod-delete.yaml",
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
        Target("kwok", module="go-tools", packages={"kwok": "sigs.k8s.io/kwok/cmd/kwok"}),
        Target(
            "kubeconform",
            module="go-tools",
            packages={"kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform"},
        ),
    )
}


def build(binaries: Path, *, only: str | None = None) -> None:
    """Build what is out of date: all targets, or one."""
    if only is not None and only not in TARGETS:
        raise UnknownName(f"no target {only!r}: {', '.join(TARGETS)}")
    for target in TARGETS.values():
        if only in {None, target.name}:
            build_target(target, binaries)


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
        if target.name == "kwok":
            write_kwok_stages(binaries / "kwok-stages.yaml")
    stamp.write_text(inputs)


def hash_inputs(target: Target, module: Path) -> str:
    """Hash of all that a target is made from."""
    digest = hashlib.sha256(repr(target).encode())
    sources = [module / "go.mod", module / "go.sum", *sorted(module.rglob("*.go"))]
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()


def compile_package(target: Target, package: str, output: Path) -> None:
    """Run the Go compiler; the binary appears only when it is whole."""
    fresh = output.with_suffix(".new")
    command = ["go", "build", *flags(target), "-o", str(fresh), package]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}
    try:
        result = subprocess.run(
            command,
            cwd=MODULES / target.module,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise ToolMissing("no Go compiler: install Go 1.26 or newer") from error
    if result.returncode != 0:
        raise BuildFailed(f"{' '.join(command)} failed:\n{result.stdout[-2000:]}")
    fresh.replace(output)


def flags(target: Target) -> list[str]:
    """Static, small and reproducible."""
    variables = [f"-X {name}={value}" for name, value in target.variables.items()]
    return [
        "-trimpath",
        "-tags=no_aufs,no_zfs,no_btrfs,no_devmapper",
        f"-ldflags={' '.join(['-s', '-w', *variables])}",
    ]


def make_link(link: Path, binary: str) -> None:
    """Point a name at a binary of the same folder."""
    link.unlink(missing_ok=True)
    link.symlink_to(binary)


def write_kwok_stages(output: Path) -> None:
    """Collect the stages from kwok's module, whose version go.sum pins."""
    module_folder = MODULES / "go-tools"
    module = run(["go", "-C", module_folder, "list", "-m", "-f={{.Dir}}", "sigs.k8s.io/kwok"])
    stages = [(Path(module.strip()) / stage).read_text() for stage in KWOK_STAGES]
    output.write_text("---\n".join(stages))
