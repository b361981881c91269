# SPDX-License-Identifier: Apache-2.0
"""MPIJob of Kubeflow's MPI Operator (kubeflow.org/v2beta1)."""

import dataclasses
from typing import Any

from gpupack_cli.convert.foreign import Foreign, parse
from gpupack_cli.convert.job import gpujob
from gpupack_cli.convert.kubeflow import ReplicaSpec, RunPolicy, run_policy
from gpupack_cli.convert.mpirun import RankCommand, rank_command
from gpupack_cli.convert.pod import Container, ObjectMeta
from gpupack_cli.convert.report import NotConverted, Report
from gpupack_cli.convert.settings import Settings
from gpupack_cli.convert.worker import WorkerTemplate, read_pod, worker_template
from gpupack_kubeclient.objects import Json


class ReplicaSpecs(Foreign, frozen=True, rename="pascal"):
    """Launcher and workers."""

    launcher: ReplicaSpec | None = None
    worker: ReplicaSpec | None = None


class Spec(Foreign, frozen=True):
    """The spec of an MPIJob."""

    slots_per_worker: int = 1
    run_launcher_as_worker: bool = False
    run_policy: RunPolicy = RunPolicy()
    mpi_replica_specs: ReplicaSpecs = ReplicaSpecs()
    ssh_auth_mount_path: str = ""
    launcher_creation_policy: str = ""
    mpi_implementation: str = ""


class MPIJob(Foreign, frozen=True):
    """An MPIJob."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Spec = Spec()


def convert(json: Json, settings: Settings, report: Report) -> list[Json]:
    """Return the GPUJob of an MPIJob, whose workers run the ranks of the launcher's mpirun.

    Raises:
        NotConverted: it has no equivalent.
    """
    source = parse(json, MPIJob, report)
    spec, specs = source.spec, source.spec.mpi_replica_specs
    path = "spec.mpiReplicaSpecs"
    if specs.worker is None or specs.launcher is None:
        raise NotConverted(path, None, "give Launcher and Worker")
    workers = specs.worker.replicas + (1 if spec.run_launcher_as_worker else 0)
    template = worker_template(
        specs.worker.template, settings, report, path=f"{path}.Worker.template"
    )
    launcher = _launcher(specs.launcher, path=f"{path}.Launcher.template")
    where = f"{path}.Launcher.template.spec.containers[0]"
    ranks = rank_command([*launcher.command, *launcher.args], report, path=f"{where}.command")
    if launcher.image != template.worker.get("image"):
        report.dropped(
            f"{where}.image", launcher.image, "the ranks run in the image of the workers"
        )
    slots = spec.slots_per_worker
    check_ranks(ranks, workers * slots, report, path=f"{where}.command")
    if template.worker.get("command"):
        report.note(
            f"{path}.Worker.template.spec.containers[0].command",
            template.worker["command"],
            "workers need no sshd; they run the program of the ranks",
        )
    template = with_ranks(template, ranks, launcher)
    fields = run_policy(
        spec.run_policy,
        workers=workers,
        min_workers=None,
        restart_policy=specs.launcher.restart_policy or specs.worker.restart_policy,
        report=report,
    )
    fields = dataclasses.replace(fields, by_mpirun=True, processes_per_worker=slots)
    return [gpujob(source.metadata, template, fields, report)]


def check_ranks(ranks: RankCommand, slots: int, report: Report, *, path: str) -> None:
    """Report a number of ranks that is not that of all slots."""
    if ranks.ranks is not None and ranks.ranks != slots:
        report.dropped(
            f"{path} -np",
            ranks.ranks,
            f"{slots} ranks: workers x processesPerWorker; change one of them",
        )


def with_ranks(template: WorkerTemplate, ranks: RankCommand, launcher: Container) -> WorkerTemplate:
    """Return a template whose worker runs the program of a rank, with the launcher's variables."""
    worker = {name: value for name, value in template.worker.items() if name != "args"}
    own: list[Any] = worker.get("env", [])
    present = {each.get("name") for each in own}
    added = {each.name: each.value for each in launcher.env if each.value} | ranks.env
    env = [*own, *({"name": k, "value": v} for k, v in added.items() if k not in present)]
    worker |= {"command": list(ranks.program)} | ({"env": env} if env else {})
    return template.with_worker(worker | ({"workingDir": ranks.folder} if ranks.folder else {}))


def _launcher(spec: ReplicaSpec, *, path: str) -> Container:
    pod = read_pod(spec.template, path=path)
    if not pod.containers:
        raise NotConverted(f"{path}.spec.containers", None, "the launcher has no container")
    return pod.containers[0]
