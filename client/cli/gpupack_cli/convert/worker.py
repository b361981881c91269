# SPDX-License-Identifier: Apache-2.0
"""A pod template as the template of a GPUJob's workers."""

import dataclasses
from typing import Any, Final

import msgspec

from gpupack_cli.convert import queue_labels
from gpupack_cli.convert.gpus import (
    KAI_CONTAINER,
    GpuRequest,
    gpu_request,
    is_gpu_resource,
    is_model,
    kai_request,
)
from gpupack_cli.convert.pod import Container, PodSpec, PodTemplate
from gpupack_cli.convert.report import NotConverted, Report
from gpupack_cli.convert.settings import Settings
from gpupack_crds import names
from gpupack_kubeclient.objects import Json

HAMI_MODELS: Final = "nvidia.com/use-gputype"
PRODUCT_LABEL: Final = "nvidia.com/gpu.product"
"""Label of NVIDIA's GPU feature discovery."""

NVIDIA_RUNTIME: Final = "nvidia"

MAX_GRACE_SECONDS: Final = 3600

DEVICE_VARIABLES: Final = ("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


FORBIDDEN: Final = {
    "nodeName": "gpupack chooses the node; use nodeSelector or affinity",
    "hostname": "workers have gpupack's host names; GPUPACK_RENDEZVOUS is that of worker 0",
    "subdomain": "workers have gpupack's host names; GPUPACK_RENDEZVOUS is that of worker 0",
    "schedulingGates": "use spec.suspend",
    "resourceClaims": "gpupack does not place by resource claims; request GPUs with spec.gpus",
}
"""Fields of a pod that a GPUJob's template refuses, with what to do instead."""

REPLACED: Final = ("schedulerName", "priority", "preemptionPolicy", "restartPolicy")
"""Fields of a pod that the GPUJob itself decides."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTemplate:
    """A worker's pod.

    Attributes:
        request: GPUs of each worker.
        pod: the PodSpec without what a GPUJob's template refuses.
        container: name of the worker's container in it.
        labels: labels of the pods.
        annotations: annotations of the pods.
        models: permitted GPU models; empty: any.
        restart_policy: restart policy of the source's pod; empty: its default.
        priority_class: PriorityClass of the source's pod.
        deadline_seconds: limit of the source's pod; None: none.
    """

    request: GpuRequest
    pod: Json
    container: str
    labels: dict[str, str]
    annotations: dict[str, str]
    models: tuple[str, ...]
    restart_policy: str
    priority_class: str
    deadline_seconds: int | None

    @property
    def worker(self) -> Json:
        """The worker's container."""
        found: Json = next(each for each in self.pod["containers"] if self._is_worker(each))
        return found

    def _is_worker(self, container: Json) -> bool:
        return bool(container.get("name") == self.container)

    def with_worker(self, changed: Json) -> "WorkerTemplate":
        """Return this template with another worker container."""
        containers = [changed if self._is_worker(each) else each for each in self.pod["containers"]]
        return dataclasses.replace(self, pod=self.pod | {"containers": containers})

    def as_template(self) -> Json:
        """Return the template of a GPUJob."""
        metadata = {"labels": self.labels, "annotations": self.annotations}
        given = {name: value for name, value in metadata.items() if value}
        return ({"metadata": given} if given else {}) | {"spec": self.pod}


def worker_template(
    template: PodTemplate, settings: Settings, report: Report, *, path: str
) -> WorkerTemplate:
    """Return a pod template as that of workers.

    Raises:
        NotConverted: no container, or several, requests GPUs.
    """
    pod = read_pod(template, path=path)
    place, request = find_request(pod, template, settings, report, path=path)
    spec = without_gpus(template.spec, report, path=f"{path}.spec")
    models, spec = _models(template.metadata.annotations, pod, spec, report, path=path)
    for name, advice in FORBIDDEN.items():
        if name in spec:
            report.dropped(f"{path}.spec.{name}", spec[name], advice)
    grace = pod.termination_grace_period_seconds
    if grace is not None and grace > MAX_GRACE_SECONDS:
        report.dropped(
            f"{path}.spec.terminationGracePeriodSeconds", grace, f"{MAX_GRACE_SECONDS} is the limit"
        )
        spec = spec | {"terminationGracePeriodSeconds": MAX_GRACE_SECONDS}
    spec = without_nvidia_runtime(spec, request, report, path=f"{path}.spec")
    left_out = {*FORBIDDEN, *REPLACED, "priorityClassName", "activeDeadlineSeconds"}
    spec = {name: value for name, value in spec.items() if name not in left_out}
    if pod.service_account_name and pod.automount_service_account_token is None:
        # A GPUJob's pods have no token of their service account unless the template says so.
        spec = spec | {"automountServiceAccountToken": True}
    name, spec = _named_worker(spec, place, report, path=path)
    return WorkerTemplate(
        request=request,
        pod=spec,
        container=name,
        labels=queue_labels.kept(template.metadata.labels, report, path=f"{path}.metadata.labels"),
        annotations=queue_labels.kept(
            template.metadata.annotations, report, path=f"{path}.metadata.annotations"
        ),
        models=models,
        restart_policy=pod.restart_policy,
        priority_class=pod.priority_class_name,
        deadline_seconds=pod.active_deadline_seconds,
    )


def read_pod(template: PodTemplate, *, path: str) -> PodSpec:
    """Parse the fields of a pod that the conversion reads; raises NotConverted."""
    try:
        return msgspec.convert(template.spec, PodSpec, strict=False)
    except msgspec.ValidationError as error:
        raise NotConverted(f"{path}.spec", None, f"the pod is invalid: {error}") from error


def find_request(
    pod: PodSpec, template: PodTemplate, settings: Settings, report: Report, *, path: str
) -> tuple[int, GpuRequest]:
    """Return the place of the container with GPUs, and its request; raises NotConverted."""
    where = f"{path}.spec.containers"
    for number, each in enumerate(pod.containers):
        if each.resources.claims:
            report.dropped(
                f"{where}[{number}].resources.claims",
                msgspec.to_builtins(each.resources.claims),
                FORBIDDEN["resourceClaims"],
            )
    found = [
        (number, request)
        for number, each in enumerate(pod.containers)
        if (
            request := gpu_request(
                each.resources, settings, report, path=f"{where}[{number}].resources"
            )
        )
    ]
    annotations = template.metadata.annotations
    if not found and (
        request := kai_request(annotations, settings, report, path=f"{path}.metadata.annotations")
    ):
        found = [(_kai_container(pod.containers, annotations.get(KAI_CONTAINER, "")), request)]
    if not found:
        raise NotConverted(where, None, "no container requests a GPU; a GPUJob's workers have GPUs")
    if len(found) > 1:
        raise NotConverted(
            where,
            [pod.containers[number].name for number, _ in found],
            "several containers request GPUs; one container of a worker has all of its GPUs",
        )
    return found[0]


def _kai_container(containers: tuple[Container, ...], name: str) -> int:
    places = [number for number, each in enumerate(containers) if each.name == name]
    return places[0] if places else 0


def without_gpus(spec: Json, report: Report, *, path: str) -> Json:
    """Return a pod whose containers request no GPUs and choose no devices."""
    changed = dict(spec)
    for kind in ("containers", "initContainers"):
        if isinstance(spec.get(kind), list):
            changed[kind] = [
                _plain_container(each, report, path=f"{path}.{kind}[{number}]", kind=kind)
                for number, each in enumerate(spec[kind])
            ]
    return changed


def without_nvidia_runtime(spec: Json, request: GpuRequest, report: Report, *, path: str) -> Json:
    """Return a pod without NVIDIA's runtime class, which gpupack refuses where it gives GPUs."""
    name = spec.get("runtimeClassName")
    if name != NVIDIA_RUNTIME or request.resource:
        return spec
    report.note(f"{path}.runtimeClassName", name, "containers get their GPUs from gpupack's agent")
    return {key: value for key, value in spec.items() if key != "runtimeClassName"}


def _plain_container(container: Json, report: Report, *, path: str, kind: str) -> Json:
    changed = dict(container)
    resources = container.get("resources")
    if isinstance(resources, dict):
        kept = {name: value for name, value in resources.items() if name != "claims"}
        for part in ("limits", "requests"):
            amounts = kept.get(part, {})
            names_of_gpus = sorted(name for name in amounts if is_gpu_resource(name))
            if kind == "initContainers" and names_of_gpus:
                report.dropped(
                    f"{path}.resources.{part}", names_of_gpus, "init containers have no GPUs"
                )
            kept[part] = {name: amounts[name] for name in amounts if name not in names_of_gpus}
        changed["resources"] = {name: value for name, value in kept.items() if value}
        if not changed["resources"]:
            del changed["resources"]
    env = container.get("env")
    if isinstance(env, list):
        changed["env"] = [each for each in env if not _is_device_variable(each)]
        for each in env:
            if _is_device_variable(each):
                report.note(
                    f"{path}.env.{each['name']}", each.get("value"), "gpupack sets the devices"
                )
        if not changed["env"]:
            del changed["env"]
    return changed


def _is_device_variable(variable: Any) -> bool:
    name = variable.get("name", "")
    return bool(name in DEVICE_VARIABLES or name.startswith("GPUPACK_"))


def _models(
    annotations: dict[str, str], pod: PodSpec, spec: Json, report: Report, *, path: str
) -> tuple[tuple[str, ...], Json]:
    """Return the permitted models, and the pod whose node selector names none."""
    listed = [each.strip() for each in annotations.get(HAMI_MODELS, "").split(",") if each.strip()]
    where = f"{path}.metadata.annotations.{HAMI_MODELS}"
    refused = [each for each in listed if not is_model(each)]
    if refused:
        report.dropped(where, refused, "gpuModels has models such as A100-80GB")
    models = tuple(each for each in listed if each not in refused)
    product = pod.node_selector.get(PRODUCT_LABEL, "")
    if not product or not is_model(product):
        return models, spec
    report.note(
        f"{path}.spec.nodeSelector.{PRODUCT_LABEL}", product, "gpuModels, without need of the label"
    )
    selector = {key: value for key, value in pod.node_selector.items() if key != PRODUCT_LABEL}
    rest = {name: value for name, value in spec.items() if name != "nodeSelector"}
    return (*models, product), rest | ({"nodeSelector": selector} if selector else {})


def _named_worker(spec: Json, place: int, report: Report, *, path: str) -> tuple[str, Json]:
    """Name the container with GPUs `worker` where there are several; return its name too."""
    containers = spec["containers"]
    name = str(containers[place].get("name", ""))
    if len(containers) == 1 or name == names.WORKER_CONTAINER:
        return name, spec
    if any(each.get("name") == names.WORKER_CONTAINER for each in containers):
        raise NotConverted(
            f"{path}.spec.containers",
            [each.get("name") for each in containers],
            "the container with GPUs must be the one named worker; rename the containers",
        )
    report.note(
        f"{path}.spec.containers[{place}].name", name, "worker: of several, this one has the GPUs"
    )
    renamed = [
        each | {"name": names.WORKER_CONTAINER} if number == place else each
        for number, each in enumerate(containers)
    ]
    return names.WORKER_CONTAINER, spec | {"containers": renamed}
