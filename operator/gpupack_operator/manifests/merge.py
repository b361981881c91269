# SPDX-License-Identifier: Apache-2.0
"""A partial PodSpec merged over ours, as `kubectl patch` would (strategic merge).

Maps are merged, scalars replaced, lists replaced, except those that the API itself merges by a
key: an item with the same key is merged, others are added after ours. The merge keys of the pod
template's fields are part of Kubernetes' API and do not change; jsonmerge and deepmerge were
looked at, but need the same table as a JSON schema or as code.
"""

from typing import Any

from gpupack_kube.objects import Json

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


def merged(base: Json, patch: Json) -> Json:
    """Merge `patch` over `base`; neither is changed."""
    return base | {name: _value(name, base.get(name), value) for name, value in patch.items()}


def _value(name: str, base: Any, patch: Any) -> Any:
    if isinstance(base, dict) and isinstance(patch, dict):
        return merged(base, patch)
    if isinstance(base, list) and isinstance(patch, list):
        return _list(name, base, patch)
    return patch


def _list(name: str, base: list[Any], patch: list[Any]) -> list[Any]:
    if name in APPENDED:
        return base + [item for item in patch if item not in base]
    if name in MERGE_KEYS:
        return _by_key(MERGE_KEYS[name], base, patch)
    return patch


def _by_key(key: str, base: list[Json], patch: list[Json]) -> list[Json]:
    items = {item[key]: item for item in base}
    for item in patch:
        items[item[key]] = _item(items.get(item[key], {}), item)
    return list(items.values())


def _item(base: Json, patch: Json) -> Json:
    """Sources of a volume exclude each other: another kind of source replaces ours whole."""
    replaced = _is_source(base) and _is_source(patch) and base.keys() != patch.keys()
    return patch if replaced else merged(base, patch)


def _is_source(item: Json) -> bool:
    """A named item with one other field, such as a volume and where it comes from."""
    return len(item.keys() - {"name"}) == 1
