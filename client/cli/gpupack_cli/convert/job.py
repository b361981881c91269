# SPDX-License-Identifier: Apache-2.0
"""The GPUJob that a conversion makes, within the limits of its type."""

import dataclasses
import hashlib
import re
from typing import Any, Final

import msgspec

from gpupack_cli.convert import queue_labels
from gpupack_cli.convert.pod import ObjectMeta
from gpupack_cli.convert.report import NotConverted, Report
from gpupack_cli.convert.worker import WorkerTemplate
from gpupack_crds import names
from gpupack_crds.gpujob import MAX_EXTRA_WORKERS, GpuJobSpec
from gpupack_kubeclient.objects import Json

MAX_RESTARTS: Final = 100
MAX_SECONDS: Final = 31_536_000
"""Maximum of a deadline and of a time to live: a year."""
MAX_CODES: Final = 32
"""Maximum exit codes of one failure rule."""

_NAME: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_HASH_LENGTH: Final = 6

WITHOUT_LIMIT: Final = "the source restarts without limit"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JobFields:
    """The fields of a GPUJob apart from its template and GPUs; as in its spec.

    Attributes:
        workers: number of workers.
        min_workers: workers that start together; None: all.
        processes_per_worker: processes of each worker; None: one for each GPU.
        by_mpirun: mpirun starts the processes.
        max_nodes: maximum number of nodes; None: any.
        priority_class: PriorityClass; empty: that of the template.
        max_restarts: restarts after failures.
        failure_policy: rules by exit code.
        deadline_seconds: limit of the active time; None: none.
        ttl_seconds: time after the end until deletion; None: the job is kept.
        suspend: the job is created suspended.
    """

    workers: int = 1
    min_workers: int | None = None
    processes_per_worker: int | None = None
    by_mpirun: bool = False
    max_nodes: int | None = None
    priority_class: str = ""
    max_restarts: int = 0
    failure_policy: tuple[Json, ...] = ()
    deadline_seconds: int | None = None
    ttl_seconds: int | None = None
    suspend: bool = False


def gpujob(
    metadata: ObjectMeta, template: WorkerTemplate, fields: JobFields, report: Report
) -> Json:
    """Return a GPUJob.

    Raises:
        NotConverted: a value is outside the limits of a GPUJob.
    """
    if fields.suspend and queue_labels.KUEUE_QUEUE in metadata.labels:
        # Kueue, not the user, holds the job: it is created suspended.
        fields = dataclasses.replace(fields, suspend=False)
    spec = _spec(template, fields, report)
    try:
        msgspec.convert(spec, GpuJobSpec)
    except msgspec.ValidationError as error:
        raise NotConverted("spec", None, f"beyond the limits of a GPUJob: {error}") from error
    found: Json = {"name": _job_name(metadata, report)}
    if metadata.namespace:
        found["namespace"] = metadata.namespace
    for name, kept in (
        ("labels", queue_labels.kept(metadata.labels, report, path="metadata.labels")),
        (
            "annotations",
            queue_labels.kept(metadata.annotations, report, path="metadata.annotations"),
        ),
    ):
        if kept:
            found[name] = kept
    return {
        "apiVersion": names.API_VERSION,
        "kind": "GPUJob",
        "metadata": found,
        "spec": spec,
    }


def restarts(policy: str, backoff_limit: int | None, report: Report, *, path: str) -> int:
    """Return maxRestarts of a job whose pods restart by this policy, up to a number of failures."""
    if policy == "Never" and backoff_limit is None:
        return 0
    if backoff_limit is None:
        report.note(path, policy, f"{WITHOUT_LIMIT}; maxRestarts is {MAX_RESTARTS}, the maximum")
        return MAX_RESTARTS
    if backoff_limit > MAX_RESTARTS:
        report.dropped(path, backoff_limit, f"maxRestarts is at most {MAX_RESTARTS}")
    return min(max(backoff_limit, 0), MAX_RESTARTS)


def exit_code_rules(codes: list[int], action: str) -> tuple[Json, ...]:
    """Return failure rules for these exit codes, each within the limit of one rule."""
    return tuple(
        {"exitCodes": codes[start : start + MAX_CODES], "action": action}
        for start in range(0, len(codes), MAX_CODES)
    )


def _spec(template: WorkerTemplate, fields: JobFields, report: Report) -> Json:
    deadline = fields.deadline_seconds or template.deadline_seconds
    given: dict[str, Any] = {
        "workers": fields.workers,
        "minWorkers": _min_workers(fields, report),
        **template.request.spec(),
        "gpuModels": list(template.models),
        "spread": {"maxNodes": fields.max_nodes} if fields.max_nodes else None,
        "distributed": _distributed(fields),
        "priorityClassName": _priority_class(template, fields, report),
        "maxRestarts": fields.max_restarts or None,
        "failurePolicy": list(fields.failure_policy),
        "activeDeadlineSeconds": _seconds("activeDeadlineSeconds", deadline, report),
        "ttlSecondsAfterFinished": _seconds("ttlSecondsAfterFinished", fields.ttl_seconds, report),
        "suspend": fields.suspend or None,
        "template": template.as_template(),
    }
    return {name: value for name, value in given.items() if value not in (None, "", [], ())}


def _distributed(fields: JobFields) -> Json | None:
    processes = fields.processes_per_worker
    found: Json = {"backend": "mpi"} if fields.by_mpirun else {}
    return (found | ({"processesPerWorker": processes} if processes else {})) or None


def _min_workers(fields: JobFields, report: Report) -> int | None:
    least = fields.min_workers
    if least is None or least >= fields.workers:
        return None
    if fields.workers - least <= MAX_EXTRA_WORKERS:
        return max(least, 1)
    raised = fields.workers - MAX_EXTRA_WORKERS
    report.dropped(
        "minWorkers", least, f"{raised}: a job has at most {MAX_EXTRA_WORKERS} extra workers"
    )
    return raised


def _priority_class(template: WorkerTemplate, fields: JobFields, report: Report) -> str:
    name = fields.priority_class or template.priority_class
    if name:
        report.note(
            "priorityClassName",
            name,
            "kept; a GPUJob is accepted if the class has preemptionPolicy: Never",
        )
    return name


def _seconds(name: str, value: int | None, report: Report) -> int | None:
    if value is not None and value > MAX_SECONDS:
        report.dropped(name, value, f"{MAX_SECONDS} (a year) is the maximum")
        return MAX_SECONDS
    return value


def _job_name(metadata: ObjectMeta, report: Report) -> str:
    """Return the name if a GPUJob can have it, else one made from it."""
    name = metadata.name or metadata.generate_name
    if not name:
        raise NotConverted("metadata.name", None, "give the object a name")
    if len(name) <= names.MAX_JOB_NAME and _NAME.fullmatch(name):
        return name
    made = job_name(name)
    report.note(
        "metadata.name",
        name,
        f"{made}: a GPUJob's name has at most {names.MAX_JOB_NAME} characters, letters, digits "
        "and hyphens, and begins with a letter",
    )
    return made


def job_name(text: str) -> str:
    """Return a name of a GPUJob for a text; different texts have different names."""
    slug = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if not slug[:1].isalpha():
        slug = f"job-{slug}".rstrip("-")
    if slug == text:
        shortened = len(slug) > names.MAX_JOB_NAME
    else:
        shortened = len(slug) > names.MAX_JOB_NAME - _HASH_LENGTH - 1
    if not shortened:
        return slug
    digest = hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]
    return f"{slug[: names.MAX_JOB_NAME - _HASH_LENGTH - 1].rstrip('-')}-{digest}"
