# SPDX-License-Identifier: Apache-2.0
"""A partial PodSpec merged over ours, as `kubectl patch` would (strategic merge).

Maps are merged, scalars replaced, lists replaced, except those that the API itself merges by a
key: an item with the same key is merged, others are added after ours. The merge keys of the pod
template's fields are part of Kubernetes' API and do not change; jsonmerge and deepmerge were
looked at, but need the same table as a JSON schema or as code.
"""

from typing import Any

from gpupack_kube.objects import Json
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
"""Lists without a key, of which each item stands for itself."""


def merged(base: Json, patch: Json, *, field: str = "spec.template.spec") -> Json:
    """Merge `patch` over `base`; neither is changed.

    Args:
        base: ours.
        patch: the user's.
        field: where the patch stands in the GPUJob, for the error.

    Raises:
        TemplateInvalid: an item of a list is no object, or lacks what it is merged by.
    """
    values = {
        name: _value(name, base.get(name), value, field=f"{field}.{name}")
        for name, value in patch.items()
    }
    return base | values


def _value(name: str, base: Any, patch: Any, *, field: str) -> Any:
    if isinstance(base, dict) and isinstance(patch, dict):
        return merged(base, patch, field=field)
    if isinstance(base, list) and isinstance(patch, list):
        return _list(name, base, patch, field=field)
    return patch


def _list(name: str, base: list[Any], patch: list[Any], *, field: str) -> list[Any]:
    if name in APPENDED:
        return base + [item for item in patch if item not in base]
    if name in MERGE_KEYS:
        return _by_key(MERGE_KEYS[name], base, patch, field=field)
    return patch


def _by_key(key: str, base: list[Json], patch: list[Any], *, field: str) -> list[Json]:
    items = {item[key]: item for item in base}
    for number, item in enumerate(patch):
        where = f"{field}[{number}]"
        if not isinstance(item, dict) or not isinstance(item.get(key), str | int):
            raise TemplateInvalid(f"{where}: {key} is missing; it tells the items apart")
        items[item[key]] = _item(items.get(item[key], {}), item, field=where)
    return list(items.values())


def _item(base: Json, patch: Json, *, field: str) -> Json:
    """Sources of a volume exclude each other: another kind of source replaces ours whole."""
    replaced = _is_source(base) and _is_source(patch) and base.keys() != patch.keys()
    return patch if replaced else merged(base, patch, field=field)


def _is_source(item: Json) -> bool:
    """A named item with one other field, such as a volume and where it comes from."""
    return len(item.keys() - {"name"}) == 1
