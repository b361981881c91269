# SPDX-License-Identifier: Apache-2.0
"""Replicas with templates of their own, such as master and workers, as the workers of one job."""

from typing import Any, Final

from gpupack_cli.convert.pod import PodTemplate
from gpupack_cli.convert.report import NotConverted, Report
from gpupack_cli.convert.settings import Settings
from gpupack_cli.convert.worker import WorkerTemplate, worker_template
from gpupack_kubeclient.objects import Json

MAX_DIFFERENCES: Final = 20

RANK_0: Final = "all workers have the other template; rank 0 can test GPUPACK_WORKER_INDEX"


def merged(
    first: tuple[str, PodTemplate],
    others: tuple[str, PodTemplate] | None,
    settings: Settings,
    report: Report,
) -> WorkerTemplate:
    """Return one template for rank 0 and the other workers; the others' applies if they differ.

    Raises:
        NotConverted: they request different GPUs.
    """
    path, template = first
    if others is None:
        return worker_template(template, settings, report, path=path)
    other_path, other = others
    found = worker_template(other, settings, report, path=other_path)
    if _comparable(template) == _comparable(other):
        return found
    head = worker_template(template, settings, Report(), path=path)
    if head.request != found.request:
        raise NotConverted(
            f"{path}.spec.containers",
            head.request.spec(),
            f"rank 0 requests other GPUs than {other_path}; all workers of a GPUJob have equal "
            "GPUs",
        )
    differences = list(_differences(head.worker, found.worker, ""))
    rest = [each for each in _differences(head.pod, found.pod, "") if "containers" not in each[0]]
    for field, value in (*differences, *rest)[:MAX_DIFFERENCES]:
        if field != ".name":
            report.dropped(f"{path}{field}", value, RANK_0)
    return found


def _comparable(template: PodTemplate) -> Any:
    """Return what must be equal: containers without their names."""
    spec = template.spec
    containers = [
        {name: value for name, value in each.items() if name != "name"}
        if isinstance(each, dict)
        else each
        for each in spec.get("containers", [])
    ]
    return (
        template.metadata.labels,
        template.metadata.annotations,
        spec | {"containers": containers},
    )


def _differences(first: Json, second: Json, path: str) -> list[tuple[str, Any]]:
    """Return the fields in which two objects differ, with the first one's values."""
    return [
        (f"{path}.{name}", first.get(name))
        for name in sorted(first.keys() | second.keys())
        if first.get(name) != second.get(name)
    ]
