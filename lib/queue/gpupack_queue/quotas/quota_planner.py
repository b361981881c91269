# SPDX-License-Identifier: Apache-2.0
"""The places of a job within its quota.

The policy's first choice is taken if the quota allows it. Otherwise the job is planned again on the
GPUs of one key after another: all roles that permit it. Gangs on GPUs of several keys, each allowed
by the quota in part, are not searched for.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import inf

from gpupack_devices.models import common_model, may_match
from gpupack_devices.units import WHOLE_GPU
from gpupack_placement.cluster import Cluster
from gpupack_placement.request import Gang, Request
from gpupack_queue.charge import (
    Charge,
    ModelKey,
    Models,
    min_charge,
    min_charge_by_models,
    permitted_models,
)
from gpupack_queue.job import Job, Places, Tenant
from gpupack_queue.planning import Planner
from gpupack_queue.quotas.quota import Quotas
from gpupack_queue.quotas.quota_usage import QuotaUsage
from gpupack_queue.quotas.tree import Tree
from gpupack_queue.quotas.usage import Usage


class QuotaPlanner:
    """A planner that respects quotas."""

    def __init__(self, quota: QuotaUsage, plan: Planner) -> None:
        self._quota, self.plan = quota, plan
        self._left: dict[tuple[Tenant, Models], float] = {}
        self._no_usage = Usage(quota.tree)
        self._unused: dict[tuple[Tenant, Models], Mapping[ModelKey, float]] = {}

    def place(self, cluster: Cluster, job: Job) -> tuple[Places, Charge] | None:
        """Return places and what they count; None: nowhere, or not within the quota."""
        places = self.plan(cluster, job)
        return None if places is None else self.permitted(cluster, job, places)

    def permitted(self, cluster: Cluster, job: Job, places: Places) -> tuple[Places, Charge] | None:
        """Return these places if the quota allows them, or others that it allows."""
        quota = self._quota
        charge = quota.charge(cluster, places)
        if not quota.has_limits or quota.usage.fits(job.tenant, charge):
            return places, charge
        placements = self._on_one_key(cluster, job)
        return next((each for each in placements if quota.usage.fits(job.tenant, each[1])), None)

    def placements(self, cluster: Cluster, job: Job) -> Iterator[tuple[Places, Charge]]:
        """Yield where it fits, whatever the quota: the policy's choice, then key by key."""
        places = self.plan(cluster, job)
        if places is not None:
            yield places, self._quota.charge(cluster, places)
            yield from self._on_one_key(cluster, job)

    def may_fit_quota(self, cluster: Cluster, job: Job) -> bool:
        """Tell whether the quota may allow the job; False: it does not, wherever the job fits.

        The answer is cached until `forget`.
        """
        if not self._quota.has_limits or not min_charge(job.gang):
            return True
        return all(
            self._left_of(cluster, job, models) >= needed
            for models, needed in min_charge_by_models(job.gang).items()
        )

    def left_on_any_model(self, cluster: Cluster, job: Job) -> float:
        """Return how much more the quota allows of permitted models, with enough GPUs of them.

        Models that the cluster does not have are included. Infinity: no limit.
        """
        if not self._quota.has_limits:
            return inf
        keys = self._quota.keys.possible(cluster, permitted_models(job.gang))
        return self._sum_left(job, keys)

    def max_charge(self, cluster: Cluster, tenant: Tenant, gang: Gang) -> float:
        """Return how much its quota would allow of permitted models if no other job ran."""
        if not self._quota.has_limits:
            return inf
        unused = self._unused_by_key(cluster, tenant, permitted_models(gang))
        return sum(unused.values()) if unused else inf

    def usable_gang(self, cluster: Cluster, tenant: Tenant, gang: Gang) -> Gang | None:
        """Return the gang on models of which the quota can allow a GPU, or one such share.

        None: for a role it can allow none of any permitted model. It is the gang itself if it can
        allow all.
        """
        requests = [self._usable_request(cluster, tenant, request) for request in gang.requests]
        usable = [request for request in requests if request is not None]
        if len(usable) < len(requests):
            return None
        pairs = zip(usable, gang.requests, strict=True)
        return gang if all(one is other for one, other in pairs) else gang.with_requests(usable)

    def _usable_request(self, cluster: Cluster, tenant: Tenant, request: Request) -> Request | None:
        if not self._quota.has_limits or request.slices is not None:
            return request
        unused = self._unused_by_key(cluster, tenant, request.models)
        least = min(request.milli, WHOLE_GPU)
        keys = [key for key, milli in unused.items() if milli >= least]
        if len(keys) == len(unused):
            return request
        models = [model for key in keys for model in self._quota.keys.models_of(cluster, key)]
        usable = common_models(request.models, tuple(models))
        return replace(request, models=usable) if usable else None

    def _unused_by_key(
        self, cluster: Cluster, tenant: Tenant, models: Models
    ) -> Mapping[ModelKey, float]:
        """Return by permitted key what the quota would allow if no other job ran."""
        known = self._unused.get((tenant, models))
        if known is None:
            leaf, keys = self.tree.tenant(tenant), self._quota.keys.allowed(cluster, models)
            available = self._no_usage.available
            known = {key: max(available(leaf, key), 0) for key in keys}
            self._unused[tenant, models] = known
        return known

    @property
    def tree(self) -> Tree:
        """Return the tree of quotas."""
        return self._quota.tree

    @property
    def quotas(self) -> Quotas:
        """Return the quotas as they are configured."""
        return self._quota.quotas

    def forget(self) -> None:
        """Forget cached answers after a change of the quota usage or of the cluster's models."""
        self._left.clear()

    def _left_of(self, cluster: Cluster, job: Job, models: Models) -> float:
        """Return what the quota leaves of the keys of all these models."""
        left = self._left.get((job.tenant, models))
        if left is None:
            keys = self._quota.keys.allowed(cluster, models)
            left = self._left[job.tenant, models] = self._sum_left(job, keys) if keys else inf
        return left

    def _sum_left(self, job: Job, keys: tuple[ModelKey, ...]) -> float:
        leaf, usage = self._quota.tree.tenant(job.tenant), self._quota.usage
        return sum(max(usage.available(leaf, key), 0) for key in keys)

    def _on_one_key(self, cluster: Cluster, job: Job) -> Iterator[tuple[Places, Charge]]:
        quota, gang = self._quota, job.gang
        keys = quota.keys.allowed(cluster, permitted_models(gang))
        if job.model_fallback_seconds is not None and permitted_models(gang):
            keys = tuple(sorted(keys, key=lambda key: self._preference(cluster, gang, key)))
        for key in keys if len(keys) > 1 else ():
            models = quota.keys.models_of(cluster, key)
            requests = [_on_models(request, models) for request in gang.requests]
            places = self.plan(cluster, replace(job, gang=gang.with_requests(requests)))
            if places is not None:
                yield places, quota.charge(cluster, places)

    def _preference(self, cluster: Cluster, gang: Gang, key: ModelKey) -> int:
        """Return the number of the first requested model that GPUs of the key can match."""
        models = self._quota.keys.models_of(cluster, key)
        return next(
            number
            for number, requested in enumerate(permitted_models(gang))
            if any(may_match(requested, model) for model in models)
        )


def _on_models(request: Request, models: Models) -> Request:
    """Return the request for these models only, if it permits any of them."""
    common = common_models(request.models, models)
    return replace(request, models=common) if common and request.needs_gpu else request


def common_models(requested: tuple[str, ...], models: tuple[str, ...]) -> tuple[str, ...]:
    """Return the models that are both requested and in `models`, in the order of the request."""
    if not requested:
        return models
    found = (common_model(name, model) for name in requested for model in models)
    return tuple(dict.fromkeys(each for each in found if each is not None))
