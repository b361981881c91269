# SPDX-License-Identifier: Apache-2.0
"""What GPUs count against quotas: milli-GPU by key.

A key is a model as quotas name it («H100»), or ANY for the GPUs that no quota of the cluster names.
Every GPU counts under exactly one key: the name with the most words that matches its model. So no
GPU is guaranteed twice under different keys.

A share counts by its percentage or by its part of the GPU's memory, whichever is larger: a share
with 20% of the time and 90% of the memory leaves almost nothing for others. A MIG slice counts by
its part of the memory of all slices of its GPU.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NewType

import numpy as np

from gpupack_devices.models import matches_model, may_match, words
from gpupack_devices.units import WHOLE_GPU
from gpupack_placement.arrays import ABSENT
from gpupack_placement.cluster import Cluster
from gpupack_placement.model import Device
from gpupack_placement.placement import Grant, Placement
from gpupack_placement.request import Gang

ModelKey = NewType("ModelKey", str)
"""A model as quotas name it."""

ANY: Final = ModelKey("")
"""The key of GPUs whose model no quota names."""

Models = tuple[str, ...]
"""The models that a request permits; empty: all."""

Charge = Mapping[ModelKey, int]
"""Milli-GPU by key."""

NO_CHARGE: Final[Charge] = MappingProxyType({})


class ModelKeys:
    """The keys of all quotas together; immutable except for a cache."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = sorted(set(names) - {ANY}, key=lambda name: (-len(words(name)), name))
        self._known: dict[str, ModelKey] = {}

    def of(self, model: str) -> ModelKey:
        """Return the key under which GPUs of the model count."""
        key = self._known.get(model)
        if key is None:
            found = (name for name in self._names if matches_model(name, model))
            key = self._known[model] = ModelKey(next(found, ANY))
        return key

    def all(self) -> tuple[ModelKey, ...]:
        """Return every key, ANY last."""
        return (*map(ModelKey, self._names), ANY)

    def capacity(self, cluster: Cluster) -> Charge:
        """Return all GPUs of the inventory by key, whatever their health."""
        a = cluster.arrays
        found: dict[ModelKey, int] = {}
        numbers, counts = np.unique(a.model[a.capacity > 0], return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            key = self.of(cluster.model_names.values[number])
            found[key] = found.get(key, 0) + count * WHOLE_GPU
        for row in np.flatnonzero((a.parent != ABSENT).any(axis=1)).tolist():
            parents = {d.parent: d.model for d in cluster.devices_at(row) if d.is_slice}
            for model in parents.values():
                found[self.of(model)] = found.get(self.of(model), 0) + WHOLE_GPU
        return found

    def charge(self, cluster: Cluster, placements: Iterable[Placement]) -> Charge:
        """Return what the placements count; devices outside the inventory count under ANY."""
        found: dict[ModelKey, int] = {}
        for placement in placements:
            node = cluster.node(placement.node)
            here = {device.uuid: device for device in node.devices} if node else {}
            for grant in placement.devices:
                device = here.get(grant.uuid)
                key = ANY if device is None else self.of(device.model)
                milli = (
                    grant.milli if device is None else charge_of_grant(grant, device, here.values())
                )
                found[key] = found.get(key, 0) + milli
        return found

    def allowed(self, cluster: Cluster, models: Models) -> tuple[ModelKey, ...]:
        """Return the keys of the cluster's GPUs of these models, in a fixed order."""
        keys = {
            self.of(model)
            for model in cluster.model_names.in_use
            if not models or any(may_match(requested, model) for requested in models)
        }
        return tuple(sorted(keys))

    def possible(self, cluster: Cluster, models: Models) -> tuple[ModelKey, ...]:
        """Return the allowed keys and those of GPUs that may be added later, in a fixed order."""
        if not models:
            return self.all()
        others = {self.of(requested) for requested in models}
        others |= {
            ModelKey(name)
            for name in self._names
            if any(matches_model(requested, name) for requested in models)
        }
        return tuple(sorted(others.union(self.allowed(cluster, models))))

    def models_of(self, cluster: Cluster, key: ModelKey) -> tuple[str, ...]:
        """Return the models in the cluster that count under the key."""
        return tuple(sorted(m for m in cluster.model_names.in_use if self.of(m) == key))


def min_charge(gang: Gang) -> int:
    """Return the milli-GPU that the gang counts on any node; 0 for slices, which count by GPU."""
    return gang.milli


def permitted_models(gang: Gang) -> Models:
    """Return the models that any of its workers with GPUs may use; empty: all."""
    roles = [role for role in gang.roles if role.request.needs_gpu] or gang.roles
    if not all(role.request.models for role in roles):
        return ()
    return tuple(dict.fromkeys(model for role in roles for model in role.request.models))


def min_charge_by_models(gang: Gang) -> dict[Models, int]:
    """Return the milli-GPU of `min_charge` by the models that its roles permit."""
    found: dict[Models, int] = {}
    for role in gang.roles:
        if role.request.needs_gpu or len(gang.roles) == 1:
            models = role.request.models
            found[models] = found.get(models, 0) + role.milli
    if len(found) > 1:
        found[permitted_models(gang)] = gang.milli
    return found


def charge_of_grant(grant: Grant, device: Device, of_node: Iterable[Device]) -> int:
    """Return the milli-GPU that a grant counts.

    Args:
        grant: what is held of the device.
        device: a GPU or a MIG slice.
        of_node: all devices of its node, among them the slices of the same GPU.
    """
    if device.is_slice:
        cut = sum(other.memory for other in of_node if other.parent == device.parent)
        return -(-WHOLE_GPU * device.memory // cut)
    return max(grant.milli, -(-WHOLE_GPU * grant.memory // device.memory))
