# SPDX-License-Identifier: Apache-2.0
"""Job of Kubernetes (batch/v1)."""

from typing import Any, Final

from gpupack_cli.convert import standalone
from gpupack_cli.convert.foreign import Foreign, parse
from gpupack_cli.convert.job import MAX_CODES, JobFields, exit_code_rules, gpujob, restarts
from gpupack_cli.convert.pod import ObjectMeta, PodTemplate
from gpupack_cli.convert.report import Report
from gpupack_cli.convert.settings import Settings
from gpupack_cli.convert.worker import worker_template
from gpupack_kubeclient.objects import Json

DEFAULT_BACKOFF_LIMIT: Final = 6
"""Kubernetes' default."""

ACTIONS: Final = {"FailJob": "Fail", "Ignore": "Retry"}
"""Actions of a podFailurePolicy; Ignore means that the failure does not count."""


class OnExitCodes(Foreign, frozen=True):
    """Exit codes."""

    container_name: str = ""
    operator: str = ""
    values: tuple[int, ...] = ()


class FailureRule(Foreign, frozen=True):
    """A rule of a podFailurePolicy."""

    action: str = ""
    on_exit_codes: OnExitCodes | None = None
    on_pod_conditions: tuple[Any, ...] = ()


class FailurePolicy(Foreign, frozen=True):
    """The rules."""

    rules: tuple[FailureRule, ...] = ()


class Spec(Foreign, frozen=True):
    """The spec of a Job."""

    parallelism: int = 1
    completions: int | None = None
    completion_mode: str = ""
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    max_failed_indexes: int | None = None
    pod_failure_policy: FailurePolicy | None = None
    success_policy: Json | None = None
    pod_replacement_policy: str = ""
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    suspend: bool = False
    managed_by: str = ""
    selector: Json | None = None
    manual_selector: bool = False
    template: PodTemplate = PodTemplate()


class Job(Foreign, frozen=True):
    """A Job."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Spec = Spec()


def convert(json: Json, settings: Settings, report: Report) -> list[Json]:
    """Return the GPUJob of a Job; one with more completions than pods at a time stays a Job.

    Raises:
        NotConverted: it has no equivalent.
    """
    source = parse(json, Job, report)
    spec = source.spec
    completions = spec.completions or spec.parallelism
    if completions > spec.parallelism:
        report.note(
            "spec.completions",
            completions,
            "it stays a Job, whose pods gpupack places one by one: a gang runs all workers at once",
        )
        return standalone.rewritten(json, ("spec", "template"), settings, report)
    template = worker_template(spec.template, settings, report, path="spec.template")
    for name, value in (
        ("backoffLimitPerIndex", spec.backoff_limit_per_index),
        ("maxFailedIndexes", spec.max_failed_indexes),
        ("successPolicy", spec.success_policy),
    ):
        if value is not None:
            report.dropped(
                f"spec.{name}", value, "a worker that fails ends the attempt of all workers"
            )
    if completions > 1:
        report.note(
            "spec.parallelism",
            completions,
            "a gang: all workers start together, and one that fails restarts all",
        )
    if spec.managed_by:
        report.note("spec.managedBy", spec.managed_by, "gpupack manages GPUJobs")
    limit = DEFAULT_BACKOFF_LIMIT if spec.backoff_limit is None else spec.backoff_limit
    fields = JobFields(
        workers=completions,
        max_restarts=restarts(template.restart_policy, limit, report, path="spec.backoffLimit"),
        failure_policy=_failure_policy(spec.pod_failure_policy, report),
        deadline_seconds=spec.active_deadline_seconds,
        ttl_seconds=spec.ttl_seconds_after_finished,
        suspend=spec.suspend,
    )
    return [gpujob(source.metadata, template, fields, report)]


def _failure_policy(policy: FailurePolicy | None, report: Report) -> tuple[Json, ...]:
    rules = list[Json]()
    for number, each in enumerate(policy.rules if policy else ()):
        path = f"spec.podFailurePolicy.rules[{number}]"
        codes = each.on_exit_codes
        if codes is not None and codes.operator == "In" and each.action in ACTIONS:
            rules += exit_code_rules(list(codes.values), ACTIONS[each.action])
        elif codes is not None and each.action != "Count":
            report.dropped(
                f"{path}.onExitCodes",
                {"operator": codes.operator, "action": each.action},
                f"failurePolicy lists up to {MAX_CODES} exit codes for Retry, Fail or Ignore",
            )
        elif each.on_pod_conditions:
            report.note(
                f"{path}.onPodConditions", each.action, "lost nodes do not count as failures"
            )
    return tuple(rules)
