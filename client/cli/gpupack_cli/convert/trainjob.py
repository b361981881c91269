# SPDX-License-Identifier: Apache-2.0
"""TrainJob of Kubeflow Trainer (trainer.kubeflow.org/v1alpha1), with its runtime."""

import dataclasses
from typing import Any, Final

import msgspec

from gpupack_cli.convert.foreign import Foreign, parse
from gpupack_cli.convert.job import JobFields, gpujob
from gpupack_cli.convert.mpijob import check_ranks, with_ranks
from gpupack_cli.convert.mpirun import is_mpirun, rank_command
from gpupack_cli.convert.pod import Container, ObjectMeta, PodTemplate, Quantity
from gpupack_cli.convert.report import NotConverted, Report
from gpupack_cli.convert.settings import Settings
from gpupack_cli.convert.worker import worker_template
from gpupack_kubeclient.objects import Json

NODE: Final = "node"
"""Name of the replicated job, and of the container, that trains."""

RUNTIME: Final = (
    "give the runtime in the same call, written by "
    "`kubectl get clustertrainingruntime NAME -o yaml`, or set spec.trainer.image"
)


class Env(Foreign, frozen=True):
    """An environment variable with the fields that are passed on."""

    name: str
    value: str = ""
    value_from: Json = {}


class ResourcesOfNode(Foreign, frozen=True):
    """What a node of the training requests."""

    limits: dict[str, Quantity] = {}
    requests: dict[str, Quantity] = {}


class Trainer(Foreign, frozen=True):
    """The training: it overrides the runtime."""

    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[Env, ...] = ()
    num_nodes: int | None = None
    resources_per_node: ResourcesOfNode = ResourcesOfNode()
    num_proc_per_node: int | str | None = None


class RuntimeRef(Foreign, frozen=True):
    """The runtime's name."""

    name: str
    api_group: str = ""
    kind: str = ""


class PodTemplateOfJob(Foreign, frozen=True):
    """A Job's pod template."""

    template: PodTemplate = PodTemplate()


class JobTemplate(Foreign, frozen=True):
    """A template of a Job."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodTemplateOfJob = PodTemplateOfJob()


class ReplicatedJob(Foreign, frozen=True):
    """A replicated job of a JobSet; only its template is read."""

    name: str
    template: JobTemplate = JobTemplate()


class JobSetSpec(Foreign, frozen=True):
    """The replicated jobs."""

    replicated_jobs: tuple[ReplicatedJob, ...] = ()


class JobSetTemplate(Foreign, frozen=True):
    """A template of a JobSet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: JobSetSpec = JobSetSpec()


class RuntimePatchSpec(Foreign, frozen=True):
    """What a patch changes."""

    template: JobSetTemplate = JobSetTemplate()


class RuntimePatch(Foreign, frozen=True):
    """A patch of the runtime for one TrainJob."""

    manager: str = ""
    time: str = ""
    training_runtime_spec: RuntimePatchSpec = RuntimePatchSpec()


class Spec(Foreign, frozen=True):
    """The spec of a TrainJob."""

    runtime_ref: RuntimeRef
    initializer: Json | None = None
    trainer: Trainer = Trainer()
    runtime_patches: tuple[RuntimePatch, ...] = ()
    suspend: bool = False
    active_deadline_seconds: int | None = None
    managed_by: str = ""


class TrainJob(Foreign, frozen=True):
    """A TrainJob."""

    spec: Spec
    metadata: ObjectMeta = ObjectMeta()


class Torch(Foreign, frozen=True):
    """Settings of torchrun."""

    num_proc_per_node: int | str | None = None
    elastic_policy: Json | None = None


class Mpi(Foreign, frozen=True):
    """Settings of mpirun."""

    num_proc_per_node: int | None = None


class MlPolicy(Foreign, frozen=True):
    """How a runtime trains."""

    num_nodes: int | None = None
    torch: Torch | None = None
    mpi: Mpi | None = None


class RuntimeSpec(Foreign, frozen=True):
    """The spec of a runtime."""

    ml_policy: MlPolicy = MlPolicy()
    template: JobSetTemplate = JobSetTemplate()


class Runtime(Foreign, frozen=True):
    """A TrainingRuntime or ClusterTrainingRuntime; only what a TrainJob uses."""

    spec: RuntimeSpec = RuntimeSpec()


def convert(json: Json, settings: Settings, report: Report) -> list[Json]:
    """Return the GPUJob of a TrainJob.

    Raises:
        NotConverted: the runtime is unknown and needed, or the job has no equivalent.
    """
    source = parse(json, TrainJob, report)
    spec, trainer = source.spec, source.spec.trainer
    runtime = _runtime(spec.runtime_ref, settings)
    if spec.initializer:
        report.dropped(
            "spec.initializer",
            None,
            "download data and model in an init container or in the program, into a volume",
        )
    if spec.managed_by:
        report.note("spec.managedBy", spec.managed_by, "gpupack manages GPUJobs")
    pod = _patched(_runtime_pod(runtime), spec.runtime_patches, report)
    merged = PodTemplate(metadata=pod.metadata, spec=_with_trainer(pod.spec, trainer))
    template = worker_template(merged, settings, report, path="spec.trainer")
    policy = runtime.spec.ml_policy
    report.note(
        "spec.runtimeRef.name",
        spec.runtime_ref.name,
        "maxRestarts is 0; the runtime's own restarts of pods are not converted",
    )
    fields = JobFields(
        workers=trainer.num_nodes or policy.num_nodes or 1,
        deadline_seconds=spec.active_deadline_seconds,
        suspend=spec.suspend,
    )
    processes = trainer.num_proc_per_node
    if processes is None:
        torch, mpi = policy.torch or Torch(), policy.mpi or Mpi()
        processes = torch.num_proc_per_node or mpi.num_proc_per_node
    count = int(processes) if processes and str(processes).isdecimal() else None
    if processes == "cpu":
        report.dropped("spec.trainer.numProcPerNode", processes, "one process for each GPU")
    if policy.torch is not None and policy.torch.elastic_policy:
        report.dropped(
            "mlPolicy.torch.elasticPolicy", None, "set spec.minWorkers for an elastic job"
        )
    words = [*trainer.command, *trainer.args]
    if is_mpirun(words):
        ranks = rank_command(words, report, path="spec.trainer.command")
        count = count or template.request.gpus or 1
        check_ranks(ranks, fields.workers * count, report, path="spec.trainer.command")
        template = with_ranks(template, ranks, Container())
        fields = dataclasses.replace(fields, by_mpirun=True)
    if count != template.request.gpus:
        fields = dataclasses.replace(fields, processes_per_worker=count)
    metadata = _with_labels(source.metadata, spec.runtime_patches)
    return [gpujob(metadata, template, fields, report)]


def _with_labels(metadata: ObjectMeta, patches: tuple[RuntimePatch, ...]) -> ObjectMeta:
    """Return metadata with the labels and annotations that patches give the JobSet."""
    labels, annotations = dict(metadata.labels), dict(metadata.annotations)
    for each in patches:
        given = each.training_runtime_spec.template.metadata
        labels |= given.labels
        annotations |= given.annotations
    return msgspec.structs.replace(metadata, labels=labels, annotations=annotations)


def _runtime(reference: RuntimeRef, settings: Settings) -> Runtime:
    found = settings.runtimes.get(reference.name)
    # Of a runtime, only the fields above concern a TrainJob: the rest is not reported.
    return parse(found, Runtime, Report(), path="runtime") if found else Runtime()


def _runtime_pod(runtime: Runtime) -> PodTemplate:
    for each in runtime.spec.template.spec.replicated_jobs:
        if each.name == NODE:
            return each.template.spec.template
    return PodTemplate()


def _patched(pod: PodTemplate, patches: tuple[RuntimePatch, ...], report: Report) -> PodTemplate:
    """Merge patches of the training's pods over the runtime's; other patches are reported."""
    metadata, spec = pod.metadata, pod.spec
    for number, patch in enumerate(patches):
        path = f"spec.runtimePatches[{number}].trainingRuntimeSpec.template.spec.replicatedJobs"
        for each in patch.training_runtime_spec.template.spec.replicated_jobs:
            if each.name != NODE:
                report.dropped(path, each.name, "a GPUJob has only the job named node")
                continue
            change = each.template.spec.template
            metadata = ObjectMeta(
                labels=metadata.labels | change.metadata.labels,
                annotations=metadata.annotations | change.metadata.annotations,
            )
            spec = _merged_pod(spec, change.spec)
    return PodTemplate(metadata=metadata, spec=spec)


def _merged_pod(pod: Json, change: Json) -> Json:
    """Return a pod with a patch: lists of named items by name, other lists after one another."""
    result = dict(pod)
    for name, value in change.items():
        old = result.get(name)
        if isinstance(old, dict) and isinstance(value, dict):
            result[name] = _merged_pod(old, value)
        elif isinstance(old, list) and isinstance(value, list):
            result[name] = _merged_list(old, value)
        else:
            result[name] = value
    return result


def _merged_list(old: list[Any], new: list[Any]) -> list[Any]:
    if not all(isinstance(each, dict) and "name" in each for each in (*old, *new)):
        return [*old, *(each for each in new if each not in old)]
    items = {each["name"]: each for each in old}
    for each in new:
        items[each["name"]] = _merged_pod(items.get(each["name"], {}), each)
    return list(items.values())


def _with_trainer(pod: Json, trainer: Trainer) -> Json:
    """Return the pod with the trainer's fields in its container `node`."""
    given: Json = {
        "image": trainer.image,
        "command": list(trainer.command),
        "args": list(trainer.args),
        "env": [_env(each) for each in trainer.env],
    }
    resources = trainer.resources_per_node
    if resources.limits or resources.requests:
        given["resources"] = {
            name: value
            for name, value in (("limits", resources.limits), ("requests", resources.requests))
            if value
        }
    container = {"name": NODE} | {name: value for name, value in given.items() if value}
    containers = _merged_list(pod.get("containers", []), [container])
    trained = next(each for each in containers if each["name"] == NODE)
    for name in ("command", "args"):  # a runtime's list is replaced, not extended
        if given[name]:
            trained[name] = given[name]
    if not trained.get("image"):
        raise NotConverted("spec.runtimeRef.name", None, RUNTIME)
    return pod | {"containers": containers}


def _env(variable: Env) -> Json:
    if variable.value_from:
        return {"name": variable.name, "valueFrom": variable.value_from}
    return {"name": variable.name, "value": variable.value}
