# SPDX-License-Identifier: Apache-2.0
"""Strategic merge of a partial PodSpec over gpupack's, as `kubectl patch` does it.

Maps are merged, scalars and lists are replaced, except those lists that the API itself merges by a
key: an item with the same key is merged, and others are appended. The merge keys of the pod
template's fields are part of Kubernetes' API and do not change. jsonmerge and deepmerge were
considered, but they need the same table as a JSON schema or as code.
"""

from typing import Any

from gpupack_kubeclient.objects import Json
from gpupack_operator.errors import TemplateInvalid

MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "ports": "containerPort",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""Lists whose items are merged by this field."""

APPENDED = {"tolerations", "envFrom"}
"""Lists without a merge key: their items are appended."""


def merge(base: Json, patch: Json, *, field: str = "spec.template.spec") -> Json:
    """Merge `patch` over `base` into a new object.

    Args:
        base: gpupack's part.
        patch: the user's part.
        field: path of the patch in the GPUJob, for the error.

    Raises:
        TemplateInvalid: an item of a list is no object, or lacks its merge key.
    """
    values = {
        name: _value(name, base.get(name), value, field=f"{field}.{name}")
        for name, value in patch.items()
    }
    return base | values


def _value(name: str, base: Any, patch: Any, *, field: str) -> Any:
    if isinstance(base, dict) and isinstance(patch, dict):
        return merge(base, patch, field=field)
    if isinstance(base, list) and isinstance(patch, list):
        return _list(name, base, patch, field=field)
    return patch


def _list(name: str, base: list[Any], patch: list[Any], *, field: str) -> list[Any]:
    if name == "tolerations":
        base = [item for item in base if not any(_covers(other, item) for other in patch)]
    if name in APPENDED:
        return base + [item for item in patch if item not in base]
    if name in MERGE_KEYS:
        return _by_key(MERGE_KEYS[name], base, patch, field=field)
    return patch


def _covers(toleration: Any, other: Json) -> bool:
    """Return whether a toleration of the user's also tolerates the taint of gpupack's `other`.

    The taint manager goes by the shortest of a pod's tolerations for a taint, so one of gpupack's
    next to it would override it. The API server's admission plugin DefaultTolerationSeconds leaves
    out its defaults by the same rule.
    """
    return (
        isinstance(toleration, dict)
        and toleration.get("key") in (None, "", other["key"])
        and toleration.get("effect") in (None, "", other["effect"])
    )


def _by_key(key: str, base: list[Json], patch: list[Any], *, field: str) -> list[Json]:
    items = {item[key]: item for item in base}
    for number, item in enumerate(patch):
        where = f"{field}[{number}]"
        if not isinstance(item, dict) or not isinstance(item.get(key), str | int):
            raise TemplateInvalid(f"{where}: {key} is missing; it tells the items apart")
        items[item[key]] = _item(items.get(item[key], {}), item, field=where)
    return list(items.values())


def _item(base: Json, patch: Json, *, field: str) -> Json:
    """Merge an item.

    A volume has only one source, so another kind of source replaces the whole item.
    """
    replaced = _is_source(base) and _is_source(patch) and base.keys() != patch.keys()
    return patch if replaced else merge(base, patch, field=field)


def _is_source(item: Json) -> bool:
    """Tell whether an item has a name and one other field, such as a volume and its source."""
    return len(item.keys() - {"name"}) == 1
