# SPDX-License-Identifier: Apache-2.0
"""PyTorchJob of the Kubeflow Training Operator (kubeflow.org/v1)."""

import dataclasses
from typing import Any, Final

from gpupack_cli.convert.foreign import Foreign, parse
from gpupack_cli.convert.job import JobFields, gpujob
from gpupack_cli.convert.kubeflow import ReplicaSpec, RunPolicy, run_policy
from gpupack_cli.convert.pod import ObjectMeta
from gpupack_cli.convert.replicas import merged
from gpupack_cli.convert.report import NotConverted, Report
from gpupack_cli.convert.settings import Settings
from gpupack_cli.convert.worker import WorkerTemplate
from gpupack_kubeclient.objects import Json

LAUNCHERS: Final = ("torchrun", "torch.distributed", "accelerate", "deepspeed", "lightning")
"""Words of a command that starts the processes of a worker by itself."""

MAX_PROCESSES: Final = 64

RENDEZVOUS: Final = "gpupack sets torchrun's rendezvous by variables (PET_RDZV_…)"


class ElasticPolicy(Foreign, frozen=True):
    """Elastic training."""

    min_replicas: int | None = None
    max_replicas: int | None = None
    rdzv_backend: str = ""
    rdzv_port: int | None = None
    rdzv_host: str = ""
    rdzv_id: str = ""
    rdzv_conf: tuple[Any, ...] = ()
    standalone: bool = False
    n_proc_per_node: int | None = None
    max_restarts: int | None = None
    metrics: tuple[Any, ...] = ()


class ReplicaSpecs(Foreign, frozen=True, rename="pascal"):
    """Master and workers."""

    master: ReplicaSpec | None = None
    worker: ReplicaSpec | None = None


class Spec(Foreign, frozen=True):
    """The spec of a PyTorchJob."""

    run_policy: RunPolicy = RunPolicy()
    elastic_policy: ElasticPolicy | None = None
    pytorch_replica_specs: ReplicaSpecs = ReplicaSpecs()
    nproc_per_node: str | int | None = None


class PyTorchJob(Foreign, frozen=True):
    """A PyTorchJob."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Spec = Spec()


def convert(json: Json, settings: Settings, report: Report) -> list[Json]:
    """Return the GPUJob of a PyTorchJob.

    Raises:
        NotConverted: it has no equivalent.
    """
    source = parse(json, PyTorchJob, report)
    spec, specs = source.spec, source.spec.pytorch_replica_specs
    path = "spec.pytorchReplicaSpecs"
    roles = [
        (f"{path}.{name}.template", each)
        for name, each in (("Master", specs.master), ("Worker", specs.worker))
        if each is not None and each.replicas > 0
    ]
    if not roles:
        raise NotConverted(path, None, "give Master or Worker with at least one replica")
    (first_path, first), *rest = roles
    others = (rest[0][0], rest[0][1].template) if rest else None
    template = merged((first_path, first.template), others, settings, report)
    workers = sum(each.replicas for _, each in roles)
    elastic = spec.elastic_policy
    policy = roles[-1][1].restart_policy
    fields = run_policy(
        spec.run_policy, workers=workers, min_workers=None, restart_policy=policy, report=report
    )
    if elastic is not None:
        fields = _elastic(elastic, fields, spec.run_policy, report)
    processes = _processes(spec, template, fields, report)
    fields = dataclasses.replace(fields, processes_per_worker=processes)
    return [gpujob(source.metadata, template, fields, report)]


def _elastic(policy: ElasticPolicy, fields: JobFields, run: RunPolicy, report: Report) -> JobFields:
    path = "spec.elasticPolicy"
    for name, value in (
        ("rdzvBackend", policy.rdzv_backend),
        ("rdzvPort", policy.rdzv_port),
        ("rdzvHost", policy.rdzv_host),
        ("rdzvId", policy.rdzv_id),
    ):
        if value and value != "c10d":
            report.note(f"{path}.{name}", value, RENDEZVOUS)
    if policy.rdzv_conf:
        report.dropped(f"{path}.rdzvConf", None, "pass it to torchrun as --rdzv-conf")
    if policy.standalone:
        report.note(f"{path}.standalone", None, RENDEZVOUS)
    if policy.metrics:
        report.dropped(
            f"{path}.metrics",
            None,
            "extra workers start where GPUs are free and no pending job needs them, by no metric",
        )
    most = policy.max_replicas or policy.min_replicas or fields.workers
    least = policy.min_replicas or most
    restarts = fields.max_restarts
    if policy.max_restarts is not None and run.backoff_limit is None:
        restarts = min(policy.max_restarts, restarts)
    if least < most:
        report.note(
            f"{path}.minReplicas",
            least,
            "minWorkers; torchrun needs --rdzv-conf=is_host=$(( GPUPACK_WORKER_INDEX == 0 )), and "
            "the program continues from checkpoints",
        )
    return dataclasses.replace(fields, workers=most, min_workers=least, max_restarts=restarts)


def _processes(
    spec: Spec, template: WorkerTemplate, fields: JobFields, report: Report
) -> int | None:
    """Return processesPerWorker; None: one for each GPU, or torchrun's arguments decide."""
    path = "spec.nprocPerNode"
    given = spec.nproc_per_node
    if given is None and spec.elastic_policy is not None:
        given, path = spec.elastic_policy.n_proc_per_node, "spec.elasticPolicy.nProcPerNode"
    if given is not None and str(given).isdecimal() and 1 <= int(given) <= MAX_PROCESSES:
        return None if int(given) == template.request.gpus else int(given)
    if given not in (None, "auto", "gpu"):
        report.dropped(path, given, "one process for each GPU; set distributed.processesPerWorker")
    words = " ".join([*template.worker.get("command", []), *template.worker.get("args", [])])
    starts_one = given is None and not any(each in words for each in LAUNCHERS)
    if starts_one and template.request.gpus > 1 and fields.workers > 1:
        report.note(
            path,
            given,
            "processesPerWorker is 1, so that RANK and WORLD_SIZE count workers, as in the source; "
            "remove it if the command starts a process for each GPU",
        )
        return 1
    return None
