# SPDX-License-Identifier: Apache-2.0
"""Objects whose pods gpupack places one by one: the original, with gpupack's scheduler and GPUs."""

from typing import Any, Final

import msgspec

from gpupack_cli.convert import queue_labels
from gpupack_cli.convert.pod import PodTemplate
from gpupack_cli.convert.report import NotConverted, Report
from gpupack_cli.convert.settings import Settings
from gpupack_cli.convert.worker import (
    HAMI_MODELS,
    find_request,
    read_pod,
    without_gpus,
    without_nvidia_runtime,
)
from gpupack_crds import names
from gpupack_kubeclient.objects import Json

WRITTEN_BY_SERVER: Final = frozenset(
    {
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "selfLink",
        "managedFields",
        "ownerReferences",
        "finalizers",
    }
)


def rewritten(json: Json, place: tuple[str, ...], settings: Settings, report: Report) -> list[Json]:
    """Return an object whose pod template, at a place, requests gpupack's GPUs.

    Raises:
        NotConverted: it requests no GPU, or has no pod template.
    """
    path = ".".join(place)
    template = _template(json, place, path)
    pod = read_pod(template, path=path)
    number, request = find_request(pod, template, settings, report, path=path)
    spec = without_gpus(template.spec, report, path=f"{path}.spec")
    spec = without_nvidia_runtime(spec, request, report, path=f"{path}.spec")
    containers = list(spec["containers"])
    resources = containers[number].get("resources", {})
    limits = resources.get("limits", {}) | request.limits()
    containers[number] = containers[number] | {"resources": resources | {"limits": limits}}
    if "nodeName" in spec:
        report.dropped(f"{path}.spec.nodeName", spec["nodeName"], "gpupack chooses the node")
        del spec["nodeName"]
    if models := template.metadata.annotations.get(HAMI_MODELS):
        report.dropped(
            f"{path}.metadata.annotations.{HAMI_MODELS}",
            models,
            "select nodes by a label of the model with nodeSelector or affinity",
        )
    annotations = queue_labels.kept(
        template.metadata.annotations, report, path=f"{path}.metadata.annotations"
    )
    if request.limited:
        annotations[names.ISOLATION_ANNOTATION] = "limited"
    labels = queue_labels.kept(template.metadata.labels, report, path=f"{path}.metadata.labels")
    changed = {
        "metadata": {
            name: value
            for name, value in (("labels", labels), ("annotations", annotations))
            if value
        },
        "spec": spec | {"schedulerName": names.SCHEDULER_NAME, "containers": containers},
    }
    result = _replaced(json, place, changed)
    if queue_labels.KUEUE_QUEUE in json.get("metadata", {}).get("labels", {}):
        # Kueue, not the user, holds the object: it is created suspended.
        result["spec"] = {key: result["spec"][key] for key in result["spec"] if key != "suspend"}
    return [
        {name: value for name, value in result.items() if name != "status"}
        | _metadata(json, report)
    ]


def _metadata(json: Json, report: Report) -> Json:
    metadata = dict(json.get("metadata", {}))
    for part in ("labels", "annotations"):
        if isinstance(metadata.get(part), dict):
            metadata[part] = queue_labels.kept(metadata[part], report, path=f"metadata.{part}")
            if not metadata[part]:
                del metadata[part]
    kept = {name: value for name, value in metadata.items() if name not in WRITTEN_BY_SERVER}
    return {"metadata": kept}


def _template(json: Json, place: tuple[str, ...], path: str) -> PodTemplate:
    found: Any = json
    for name in place:
        found = found.get(name) if isinstance(found, dict) else None
    if not isinstance(found, dict):
        raise NotConverted(path, None, "the object has no pod template")
    try:
        return msgspec.convert(found, PodTemplate, strict=False)
    except msgspec.ValidationError as error:
        raise NotConverted(path, None, f"the pod template is invalid: {error}") from error


def _replaced(json: Json, place: tuple[str, ...], value: Json) -> Json:
    first, *rest = place
    inner = _replaced(json[first], tuple(rest), value) if rest else value
    return json | {first: inner}
