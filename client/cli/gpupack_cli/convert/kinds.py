# SPDX-License-Identifier: Apache-2.0
"""The list of kinds that are converted, and what happens to all other objects."""

import dataclasses
from collections.abc import Callable
from typing import Final

from gpupack_cli.convert import (
    batch_job,
    mpijob,
    pod_kind,
    pytorchjob,
    sbatch,
    standalone,
    trainjob,
    vcjob,
)
from gpupack_cli.convert.report import NotConverted, Report
from gpupack_cli.convert.settings import Settings
from gpupack_cli.convert.source import Manifest, Script
from gpupack_crds import names
from gpupack_kubeclient.objects import Json

Convert = Callable[[Json, Settings, Report], list[Json]]

KINDS: Final[dict[tuple[str, str], Convert]] = {
    ("kubeflow.org/v1", "PyTorchJob"): pytorchjob.convert,
    ("kubeflow.org/v2beta1", "MPIJob"): mpijob.convert,
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): trainjob.convert,
    ("batch.volcano.sh/v1alpha1", "Job"): vcjob.convert,
    ("batch/v1", "Job"): batch_job.convert,
    ("v1", "Pod"): pod_kind.convert,
}
"""Kinds that become GPUJobs."""

TEMPLATES: Final = {
    ("apps/v1", "Deployment"): ("spec", "template"),
    ("apps/v1", "StatefulSet"): ("spec", "template"),
    ("apps/v1", "ReplicaSet"): ("spec", "template"),
    ("batch/v1", "CronJob"): ("spec", "jobTemplate", "spec", "template"),
}
"""Kinds whose pods gpupack places one by one, with the place of their pod template."""

RUNTIMES: Final = frozenset({"ClusterTrainingRuntime", "TrainingRuntime"})
RUNTIME_GROUP: Final = "trainer.kubeflow.org/"

QUEUES: Final = {
    "kueue.x-k8s.io": "write GPUQuotas and GPUCohorts: docs/migrate/kueue.md",
    "scheduling.volcano.sh": "write GPUQuotas and GPUCohorts: docs/migrate/volcano.md",
    "scheduling.run.ai": "write GPUQuotas and GPUCohorts: docs/migrate/kai.md",
}
"""API groups of other schedulers, with what replaces their objects."""


@dataclasses.dataclass(frozen=True, slots=True)
class Converted:
    """The result for one source.

    Attributes:
        source: name of the source in messages.
        objects: objects to apply; empty: it was not converted.
        report: what was lost or replaced.
    """

    source: str
    objects: tuple[Json, ...]
    report: Report


def convert(sources: list[Manifest | Script], settings: Settings) -> list[Converted]:
    """Convert sources, each by itself; Trainer's runtimes among them serve the others."""
    runtimes = {
        str(each.json.get("metadata", {}).get("name", "")): each.json
        for each in sources
        if isinstance(each, Manifest) and _is_runtime(each)
    }
    known = dataclasses.replace(settings, runtimes=runtimes)
    return [
        _converted(each, known)
        for each in sources
        if isinstance(each, Script) or not _is_runtime(each)
    ]


def _is_runtime(manifest: Manifest) -> bool:
    return (
        manifest.api_version.startswith(RUNTIME_GROUP)
        and manifest.kind in RUNTIMES
        and isinstance(manifest.json.get("metadata"), dict)
    )


def _converted(source: Manifest | Script, settings: Settings) -> Converted:
    report = Report()
    try:
        objects = (
            sbatch.convert(source, settings, report)
            if isinstance(source, Script)
            else _of_manifest(source, settings, report)
        )
    except NotConverted as error:
        report.findings.append(error.finding)
        objects = []
    return Converted(source.name, tuple(objects), report)


def _of_manifest(source: Manifest, settings: Settings, report: Report) -> list[Json]:
    key = (source.api_version, source.kind)
    if key in KINDS:
        return KINDS[key](source.json, settings, report)
    if not isinstance(source.json.get("metadata", {}), dict):
        raise NotConverted("metadata", None, "the object has no valid metadata")
    if key in TEMPLATES:
        return standalone.rewritten(source.json, TEMPLATES[key], settings, report)
    group = source.api_version.partition("/")[0]
    if group in QUEUES:
        raise NotConverted("kind", source.kind, QUEUES[group])
    if "." not in group or group == names.GROUP or group.endswith(".k8s.io"):
        return [source.json]
    known = sorted(f"{version} {kind}" for version, kind in {*KINDS, *TEMPLATES})
    raise NotConverted(
        "apiVersion", f"{source.api_version} {source.kind}", f"known are {', '.join(known)}"
    )
