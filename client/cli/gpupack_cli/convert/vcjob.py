# SPDX-License-Identifier: Apache-2.0
"""Job of Volcano (batch.volcano.sh/v1alpha1)."""

import dataclasses
from typing import Any, Final

from gpupack_cli.convert.foreign import Foreign, parse
from gpupack_cli.convert.job import JobFields, exit_code_rules, gpujob, restarts
from gpupack_cli.convert.mpijob import check_ranks, with_ranks
from gpupack_cli.convert.mpirun import rank_command
from gpupack_cli.convert.pod import ObjectMeta, PodTemplate
from gpupack_cli.convert.queue_labels import NAMESPACE_QUOTA, TOPOLOGY
from gpupack_cli.convert.replicas import merged
from gpupack_cli.convert.report import NotConverted, Report
from gpupack_cli.convert.settings import Settings
from gpupack_cli.convert.worker import WorkerTemplate, read_pod, worker_template
from gpupack_kubeclient.objects import Json

DEFAULT_MAX_RETRY: Final = 3
"""Restarts of a job whose maxRetry is absent: the default of Volcano's admission webhook."""

MASTERS: Final = ("master", "mpimaster", "launcher", "chief")
"""Names of a task that starts the others, in Volcano's examples and plugins."""

RESTARTS: Final = frozenset({"RestartJob", "RestartTask", "RestartPod"})
ENDS: Final = frozenset({"AbortJob", "TerminateJob"})
WITHOUT_EFFECT: Final = frozenset({"PodEvicted"})
"""Events after which gpupack always puts the job back into the queue."""


class Policy(Foreign, frozen=True):
    """What Volcano does after an event."""

    action: str = ""
    event: str = ""
    events: tuple[str, ...] = ()
    exit_code: int | None = None
    timeout: str = ""


class Task(Foreign, frozen=True):
    """Pods of one role."""

    name: str = ""
    replicas: int = 1
    min_available: int | None = None
    template: PodTemplate = PodTemplate()
    policies: tuple[Policy, ...] = ()
    topology_policy: str = ""
    max_retry: int | None = None
    depends_on: Json | None = None
    partition_policy: Json | None = None


class Volume(Foreign, frozen=True):
    """A volume for every pod."""

    mount_path: str
    volume_claim_name: str = ""
    volume_claim: Json | None = None


class Spec(Foreign, frozen=True):
    """The spec of a vcjob."""

    scheduler_name: str = ""
    min_available: int | None = None
    volumes: tuple[Volume, ...] = ()
    tasks: tuple[Task, ...] = ()
    policies: tuple[Policy, ...] = ()
    plugins: dict[str, tuple[str, ...]] = {}
    running_estimate: str = ""
    queue: str = ""
    max_retry: int | None = None
    ttl_seconds_after_finished: int | None = None
    priority_class_name: str = ""
    min_success: int | None = None
    network_topology: Json | None = None


class VcJob(Foreign, frozen=True):
    """A Job of Volcano."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Spec = Spec()


def convert(json: Json, settings: Settings, report: Report) -> list[Json]:
    """Return the GPUJob of a vcjob.

    Raises:
        NotConverted: it has no equivalent.
    """
    source = parse(json, VcJob, report)
    spec = source.spec
    tasks = [(number, each) for number, each in enumerate(spec.tasks) if each.replicas > 0]
    if not tasks:
        raise NotConverted("spec.tasks", None, "give a task with at least one replica")
    template, fields = _workers(spec, tasks, settings, report)
    template = _with_volumes(template, spec.volumes, report)
    _report_rest(spec, report)
    for number, task in tasks:
        _report_task(task, report, path=f"spec.tasks[{number}]")
    max_restarts, rules = _policies(spec, tasks, template.restart_policy, report)
    fields = dataclasses.replace(
        fields,
        max_restarts=max_restarts,
        failure_policy=rules,
        priority_class=spec.priority_class_name,
        ttl_seconds=spec.ttl_seconds_after_finished,
    )
    return [gpujob(source.metadata, template, fields, report)]


def _workers(
    spec: Spec, tasks: list[tuple[int, Task]], settings: Settings, report: Report
) -> tuple[WorkerTemplate, JobFields]:
    paths = [f"spec.tasks[{number}].template" for number, _ in tasks]
    total = sum(task.replicas for _, task in tasks)
    if len(tasks) == 1:
        template = worker_template(tasks[0][1].template, settings, report, path=paths[0])
        return template, _elastic(spec, total, report)
    masters = [
        place
        for place, (_, task) in enumerate(tasks)
        if task.name in MASTERS and task.replicas == 1
    ]
    if len(tasks) != 2 or len(masters) != 1:  # noqa: PLR2004 - a master and its workers
        raise NotConverted(
            "spec.tasks",
            [task.name for _, task in tasks],
            "all workers of a GPUJob have one template; split the job, or give it one task",
        )
    head, rest = masters[0], 1 - masters[0]
    master, workers = tasks[head][1], tasks[rest][1]
    if "ssh" in spec.plugins or "mpi" in spec.plugins:
        return _by_mpirun((paths[head], master), (paths[rest], workers), settings, report)
    template = merged(
        (paths[head], master.template), (paths[rest], workers.template), settings, report
    )
    return template, _elastic(spec, total, report)


def _by_mpirun(
    master: tuple[str, Task], workers: tuple[str, Task], settings: Settings, report: Report
) -> tuple[WorkerTemplate, JobFields]:
    path, task = master
    pod = read_pod(task.template, path=path)
    if not pod.containers:
        raise NotConverted(f"{path}.spec.containers", None, "the master has no container")
    launcher = pod.containers[0]
    where = f"{path}.spec.containers[0].command"
    ranks = rank_command([*launcher.command, *launcher.args], report, path=where)
    template = worker_template(workers[1].template, settings, report, path=workers[0])
    if launcher.image != template.worker.get("image"):
        report.dropped(where, launcher.image, "the ranks run in the image of the workers")
    check_ranks(ranks, workers[1].replicas * (template.request.gpus or 1), report, path=where)
    fields = JobFields(workers=workers[1].replicas, by_mpirun=True)
    return with_ranks(template, ranks, launcher), fields


def _elastic(spec: Spec, total: int, report: Report) -> JobFields:
    least = spec.min_available
    if least is None or not 0 < least < total:
        return JobFields(workers=total)
    report.note(
        "spec.minAvailable",
        least,
        f"minWorkers of {total} workers; extra workers start where GPUs are free and end when a "
        "pending job needs them. Set it to workers if the program needs all of them",
    )
    return JobFields(workers=total, min_workers=least)


def _with_volumes(
    template: WorkerTemplate, volumes: tuple[Volume, ...], report: Report
) -> WorkerTemplate:
    for number, each in enumerate(volumes):
        path = f"spec.volumes[{number}]"
        if each.volume_claim is not None:
            report.dropped(
                f"{path}.volumeClaim",
                each.volume_claim,
                "create the PersistentVolumeClaim, with access for all workers, and name it",
            )
        claim = each.volume_claim_name
        name = f"volume-{number}"
        source: Json = (
            {"persistentVolumeClaim": {"claimName": claim}} if claim else {"emptyDir": {}}
        )
        worker = template.worker
        mounts: list[Any] = worker.get("volumeMounts", [])
        mount = {"name": name, "mountPath": each.mount_path}
        template = template.with_worker(worker | {"volumeMounts": [*mounts, mount]})
        listed = [*template.pod.get("volumes", []), {"name": name} | source]
        template = dataclasses.replace(template, pod=template.pod | {"volumes": listed})
    return template


def _report_rest(spec: Spec, report: Report) -> None:
    if spec.queue and spec.queue != "default":
        report.note("spec.queue", spec.queue, NAMESPACE_QUOTA)
    if spec.min_success is not None:
        report.dropped("spec.minSuccess", spec.min_success, "a GPUJob succeeds if all workers do")
    if spec.network_topology:
        report.dropped("spec.networkTopology", spec.network_topology, TOPOLOGY)
    if spec.running_estimate:
        report.note(
            "spec.runningEstimate",
            spec.running_estimate,
            "activeDeadlineSeconds bounds the run and allows backfill",
        )
    for name in spec.plugins:
        if name == "svc":
            report.dropped(
                "spec.plugins.svc",
                None,
                "/etc/volcano is missing; use GPUPACK_RENDEZVOUS",
            )
        elif name == "env":
            report.dropped("spec.plugins.env", None, "GPUPACK_WORKER_INDEX replaces VC_TASK_INDEX")
        elif name not in {"pytorch", "ssh", "mpi"}:
            report.dropped(f"spec.plugins.{name}", None, "see docs/your-own-image.md")


def _report_task(task: Task, report: Report, *, path: str) -> None:
    if task.min_available is not None and task.min_available < task.replicas:
        report.dropped(
            f"{path}.minAvailable", task.min_available, "minWorkers counts workers of the whole job"
        )
    if task.topology_policy not in {"", "none"}:
        report.dropped(
            f"{path}.topologyPolicy", task.topology_policy, "the kubelet's policy applies"
        )
    if task.depends_on:
        report.note(f"{path}.dependsOn", task.depends_on, "all workers start together")
    if task.partition_policy:
        report.dropped(f"{path}.partitionPolicy", task.partition_policy, TOPOLOGY)


def _policies(
    spec: Spec, tasks: list[tuple[int, Task]], restart_policy: str, report: Report
) -> tuple[int, tuple[Json, ...]]:
    """Return maxRestarts and the failure policy."""
    retries = spec.max_retry or DEFAULT_MAX_RETRY
    most = 0 if restart_policy == "Never" else None
    rules = list[Json]()
    found = [("spec.policies", each) for each in spec.policies]
    found += [
        (f"spec.tasks[{number}].policies", each) for number, task in tasks for each in task.policies
    ]
    for path, each in found:
        events = {*each.events, *([each.event] if each.event else [])}
        value = {"events": sorted(events), "exitCode": each.exit_code, "action": each.action}
        if each.exit_code and each.action in RESTARTS | ENDS:
            action = "Retry" if each.action in RESTARTS else "Fail"
            rules += exit_code_rules([each.exit_code], action)
        elif events <= WITHOUT_EFFECT and each.action in RESTARTS:
            continue
        elif "PodFailed" in events and each.action in RESTARTS:
            most = retries
        elif "PodFailed" in events and each.action in ENDS:
            most = 0
        elif events == {"TaskCompleted"} and each.action == "CompleteJob":
            report.note(path, value, "the job succeeds when all workers have ended")
        else:
            report.dropped(path, value, "use maxRestarts, or failurePolicy with exit codes")
    policy = restart_policy or "Always"
    return restarts(policy, most, report, path="spec.maxRetry"), tuple(rules)
