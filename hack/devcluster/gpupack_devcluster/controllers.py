# SPDX-License-Identifier: Apache-2.0
"""Controllers of other projects that create gangs: JobSet, LeaderWorkerSet, Trainer, Ray, Kueue.

Each is compiled from its Go module (build.py) and installed with the manifests of that module.
Only the image and the command of its Deployment differ: one image holds all binaries.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpupack_devcluster.build import CONTROLLERS as MODULES
from gpupack_devcluster.build import go_environment
from gpupack_devcluster.commands import run
from gpupack_devcluster.errors import UnknownName
from gpupack_devcluster.kubectl import Kubectl
from gpupack_devcluster.settings import Paths
from gpupack_devcluster.timing import phase

IMAGE = "docker.io/gpupack/controllers:dev"
READY_SECONDS = 180


@dataclass(frozen=True)
class Controller:
    """A controller and the manifests with which its project installs it.

    `manifests`: folder in the Go module with all that `resources` names. `after`: controllers that
    must run before. `has_namespace`: the resources contain the namespace. `secrets`: empty Secrets
    for the controller's certificates, if the resources do not contain them.
    """

    module: str
    namespace: str
    manifests: str
    resources: tuple[str, ...]
    after: tuple[str, ...] = ()
    has_namespace: bool = True
    secrets: tuple[str, ...] = ()


CONTROLLERS: Mapping[str, Controller] = {
    "jobset": Controller("sigs.k8s.io/jobset", "jobset-system", "config", ("default",)),
    "kueue": Controller("sigs.k8s.io/kueue", "kueue-system", "config", ("default",)),
    "kuberay": Controller(
        "github.com/ray-project/kuberay/ray-operator",
        "ray-system",
        "config",
        ("default",),
        has_namespace=False,
    ),
    "lws": Controller("sigs.k8s.io/lws", "lws-system", "config", ("default",)),
    "trainer": Controller(
        "github.com/kubeflow/trainer/v2",
        "kubeflow-system",
        "manifests",
        ("base/crds", "base/manager", "base/rbac", "base/webhook"),
        after=("jobset",),
        has_namespace=False,
        secrets=("kubeflow-trainer-webhook-cert",),
    ),
}


def install(names: Sequence[str], paths: Paths, kubectl: Kubectl) -> None:
    """Install these controllers and those that they need, and wait until they are available.

    Raises:
        UnknownName: no controller has this name.
    """
    for name in in_order(names):
        controller = CONTROLLERS[name]
        with phase(f"{name} installed"):
            manifest = render(name, controller, paths.state / "controllers" / name, kubectl)
            kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text_input=manifest)
            wait = ("wait", "deployment", "--all", "--for=condition=Available")
            kubectl(*wait, "-n", controller.namespace, f"--timeout={READY_SECONDS}s")


def remove(names: Sequence[str], paths: Paths, kubectl: Kubectl) -> None:
    """Delete these controllers with their definitions, and so all of their objects."""
    for name in reversed(in_order(names)):
        folder = paths.state / "controllers" / name
        manifest = render(name, CONTROLLERS[name], folder, kubectl)
        with phase(f"{name} removed"):
            kubectl("delete", "--ignore-not-found", "-f", "-", text_input=manifest)


def in_order(names: Sequence[str]) -> list[str]:
    """Return these controllers and those that they need, each once, in the order of installation.

    Raises:
        UnknownName: no controller has this name.
    """
    for name in names:
        if name not in CONTROLLERS:
            raise UnknownName(f"no controller {name!r}: {', '.join(CONTROLLERS)}")
    wanted = [each for name in names for each in (*CONTROLLERS[name].after, name)]
    return list(dict.fromkeys(wanted))


def render(name: str, controller: Controller, folder: Path, kubectl: Kubectl) -> str:
    """Return the manifests of a controller, with our image, as YAML.

    kustomize reads only below its own folder, so the module's manifests are copied there.
    """
    source = Path(module_folder(name, controller.module)) / controller.manifests
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder / "upstream", copy_function=shutil.copyfile)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    metadata = {"name": controller.namespace}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    (folder / "namespace.json").write_text(json.dumps(namespace))
    (folder / "kustomization.yaml").write_text(json.dumps(overlay(name, controller)))
    return kubectl("kustomize", str(folder))


def module_folder(name: str, module: str) -> str:
    """Return the folder of a Go module, whose content go.sum pins."""
    command = ["go", "-C", str(MODULES / name), "list", "-m", "-f={{.Dir}}", module]
    return run(command, environment=go_environment()).strip()


def overlay(name: str, controller: Controller) -> dict[str, object]:
    """Return the kustomization that replaces image and command of the controller."""
    container = "/spec/template/spec/containers/0"
    patch = [
        {"op": "add", "path": f"{container}/image", "value": IMAGE},
        {"op": "add", "path": f"{container}/command", "value": [f"/controller-{name}"]},
        {"op": "add", "path": f"{container}/imagePullPolicy", "value": "IfNotPresent"},
    ]
    resources = [f"upstream/{each}" for each in controller.resources]
    return {
        "namespace": controller.namespace,
        "resources": resources if controller.has_namespace else [*resources, "namespace.json"],
        "patches": [{"target": {"kind": "Deployment"}, "patch": json.dumps(patch)}],
        "secretGenerator": [{"name": each} for each in controller.secrets],
        "generatorOptions": {"disableNameSuffixHash": True},
    }
