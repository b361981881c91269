# SPDX-License-Identifier: Apache-2.0
"""Gangs whose processes mpirun starts: the launcher in each pod, and the key of an attempt.

    init container ─ copies the launcher (one static binary) ─► volume ─► worker container:
    command: gpupack-mpi run -- COMMAND…     worker 0: mpirun; others: run what it starts
    key of the attempt: Secret ─► file; only this attempt's workers have it

The user's image does not contain the launcher: it needs an MPI, and nothing of gpupack.
"""

import base64
import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from gpupack_crds import indices, names
from gpupack_crds.kinds import GpuJob
from gpupack_crds.worker_pods import WorkerPod
from gpupack_kubeclient.objects import Json
from gpupack_operator.errors import TemplateInvalid
from gpupack_operator.manifests import owner
from gpupack_operator.manifests.containers import with_changed

WORKLOADS_COMMAND: Final = ("python", "-m", "gpupack_workloads")
"""Entry point of the workloads' image, which gpupack's command replaces."""

KEY_BYTES: Final = 32
KEY_FOLDER: Final = "/etc/gpupack-mpi"
KEY_FILE: Final = "key"
KEY_PATH: Final = f"{KEY_FOLDER}/{KEY_FILE}"

LAUNCHER: Final = "/opt/gpupack-mpi/gpupack-mpi"
"""Path of the launcher, both in the agent's image and in a worker."""
LAUNCHER_FOLDER: Final = "/opt/gpupack-mpi"
COPY_FOLDER: Final = "/copy"
INIT_CONTAINER: Final = "gpupack-mpi"
LAUNCHER_VOLUME: Final = "gpupack-mpi"
KEY_VOLUME: Final = "gpupack-mpi-key"
UNPRIVILEGED: Final = 65532

PODS: Final = "GPUPACK_MPI_PODS"
"""Variable with the indices of the workers in each pod, such as 0-3;4-7."""

INIT_NEEDS: Final = {"cpu": "100m", "memory": "64Mi"}
"""Requests and limits of the init container: a quota may require both of every container."""


@dataclasses.dataclass(frozen=True, slots=True)
class LauncherSettings:
    """Settings of the launcher.

    Attributes:
        container: the name of the worker's container.
        secret: the name of the Secret with the key.
        image: an image that contains the launcher.
        policy: the image's pull policy.
    """

    container: str
    secret: str
    image: str
    policy: str


def secret(job: GpuJob, *, attempt: int, key: bytes) -> Json:
    """Make the Secret of one attempt; it is deleted with the attempt's Job or with the GPUJob."""
    name = names.mpi_secret(job.metadata.uid, attempt=attempt)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": names.MPI_SECRET_TYPE,
        "immutable": True,
        "metadata": owner.metadata(job, name=name, attempt=attempt),
        "data": {KEY_FILE: base64.b64encode(key).decode()},
    }


def with_launcher(pod_spec: Json, launcher: LauncherSettings) -> Json:
    """Return a copy of the PodSpec in which the launcher starts the worker container's command.

    Raises:
        TemplateInvalid: the container has no command, or the chart names no image.
    """
    if not launcher.image:
        raise TemplateInvalid(
            "distributed.backend mpi needs the image of the launcher: "
            "set GPUPACK_LAUNCHER_IMAGE of the operator, as gpupack's chart does"
        )
    made = with_changed(
        pod_spec, {launcher.container}, lambda worker: _with_launcher_command(worker, launcher)
    )
    return made | {
        "initContainers": [_copying_container(launcher), *pod_spec.get("initContainers", ())],
        "volumes": [
            *pod_spec.get("volumes", ()),
            {"name": LAUNCHER_VOLUME, "emptyDir": {}},
            {"name": KEY_VOLUME, "secret": {"secretName": launcher.secret}},
        ],
    }


def with_pods(template: Json, pods: Sequence[WorkerPod], *, container: str) -> Json:
    """Return the template with a variable that lists each pod's workers if workers share pods.

    Args:
        template: the pods' merged template.
        pods: pods of a gang whose workers share pods; empty: each worker has its own pod.
        container: name of the worker container.
    """
    if not pods:
        return template
    value = ";".join(indices.written(pod.workers) for pod in pods)
    variable = {"name": PODS, "value": value}
    spec = with_changed(
        template["spec"],
        {container},
        lambda worker: worker | {"env": [*(worker.get("env") or ()), variable]},
    )
    return template | {"spec": spec}


def _with_launcher_command(container: Json, launcher: LauncherSettings) -> Json:
    command = [*(container.get("command") or ()), *(container.get("args") or ())]
    if not container.get("command"):
        raise TemplateInvalid(
            f"container {launcher.container} has no command: with distributed.backend mpi it is "
            "what each rank runs"
        )
    mounts = [
        *container.get("volumeMounts", ()),
        {"name": LAUNCHER_VOLUME, "mountPath": LAUNCHER_FOLDER, "readOnly": True},
        {"name": KEY_VOLUME, "mountPath": KEY_FOLDER, "readOnly": True},
    ]
    kept = {name: value for name, value in container.items() if name != "args"}
    return kept | {"command": [LAUNCHER, "run", "--", *command], "volumeMounts": mounts}


def _copying_container(launcher: LauncherSettings) -> Json:
    """Make the init container.

    Its fixed user can write the folder, and every user can run the copy.
    """
    context: dict[str, Any] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": UNPRIVILEGED,
        "readOnlyRootFilesystem": True,
    }
    return {
        "name": INIT_CONTAINER,
        "image": launcher.image,
        "imagePullPolicy": launcher.policy,
        "command": ["cp", LAUNCHER, f"{COPY_FOLDER}/"],
        "securityContext": context,
        "resources": {"limits": INIT_NEEDS, "requests": INIT_NEEDS},
        "volumeMounts": [{"name": LAUNCHER_VOLUME, "mountPath": COPY_FOLDER}],
    }
