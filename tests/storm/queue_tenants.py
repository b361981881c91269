# SPDX-License-Identifier: Apache-2.0
"""Tenants of the cluster in a storm of the queue: namespaces, quotas, two trees of cohorts.

storm-left                      storm-right (first come, first served)
├── storm-inner                 ├── atlas
│   ├── vision                  └── robots
│   └── speech
└── physics                     and guests without a quota
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from harness import Kube
from pod_rules import Limit

Manifest = dict[str, Any]

H100, A100, T4 = "H100", "A100", "T4"
REAL = H100
"""The model of the simulated GPUs on nodes that run containers."""
PRIORITIES = {"storm-urgent": 2000, "storm-high": 1000}
"""PriorityClasses."""


@dataclasses.dataclass(frozen=True)
class Quota:
    """What a namespace, or a cohort together with all below it, is promised and may borrow.

    Attributes:
        gpus: by model (nominal, borrowing limit); without limit where that is None.
        lending: how many of the promised ones others may have at the most, by model.
    """

    gpus: Mapping[str, tuple[int, int | None]]
    cohort: str = ""
    weight: int = 1
    lending: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def most(self, model: str) -> int | None:
        """How many GPUs it may use; None: as many as there are."""
        nominal, borrowing = self.gpus.get(model, (0, None))
        return None if borrowing is None else nominal + borrowing

    def limits(self) -> list[Manifest]:
        """As the API has them."""
        return [
            {"model": model, "nominal": nominal}
            | ({} if borrowing is None else {"borrowingLimit": borrowing})
            | ({"lendingLimit": self.lending[model]} if model in self.lending else {})
            for model, (nominal, borrowing) in self.gpus.items()
        ]


QUOTAS = {
    "vision": Quota({A100: (24, 24), T4: (16, None), H100: (4, None)}, "storm-inner", weight=2),
    "speech": Quota({A100: (16, 24), T4: (8, 8), H100: (2, None)}, "storm-inner"),
    "physics": Quota({A100: (8, 24), H100: (0, 8)}, "storm-left", weight=3),
    "atlas": Quota({A100: (24, None), T4: (12, 8)}, "storm-right", lending={A100: 16}),
    "robots": Quota({A100: (8, None), T4: (8, None), H100: (4, None)}, "storm-right", weight=2),
    "guests": None,
}
"""By namespace; sums of what is promised stay within what there is."""

COHORTS: dict[str, Manifest] = {
    "storm-left": {"minRunSeconds": 2},
    "storm-inner": {
        "parent": "storm-left",
        "minRunSeconds": 0,
        "weight": 2,
        "gpus": [{"model": A100, "nominal": 0, "borrowingLimit": 24}],
    },
    "storm-right": {"minRunSeconds": 1, "order": "Strict"},
}
INNER_MOST = 24 + 16 + 24
"""A100s for all of storm-inner: what its namespaces are promised, and what they borrow together."""


def limits(namespaces: Mapping[str, str]) -> list[Limit]:
    """What the watcher holds namespaces to; `namespaces` are their names in the cluster."""
    found = [
        Limit(f"namespace {name}", frozenset({namespaces[name]}), model, most)
        for name, quota in QUOTAS.items()
        if quota
        for model in quota.gpus
        if (most := quota.most(model)) is not None
    ]
    inner = {namespaces[name] for name, q in QUOTAS.items() if q and q.cohort == "storm-inner"}
    return [*found, Limit("cohort storm-inner", frozenset(inner), A100, INNER_MOST)]


def max_gpus_of(tenant: str, models: tuple[str, ...]) -> int:
    """How many GPUs a gang of this namespace may have, whichever of the models it gets."""
    quota, most = QUOTAS[tenant], {H100: 16, A100: 32, T4: 8}
    allowed = [quota.most(model) if quota else None for model in models]
    return min(
        most[model] if limit is None else min(limit, most[model])
        for model, limit in zip(models, allowed, strict=True)
    )


@contextlib.contextmanager
def tenants(kube: Kube, make: Callable[[str], Kube]) -> Iterator[dict[str, Kube]]:
    """All of them, in namespaces that `make` makes; cohorts and classes go when the block ends."""
    classes = [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "preemptionPolicy": "Never",
        }
        for name, value in PRIORITIES.items()
    ]
    cohorts = [_object("GPUCohort", name, spec) for name, spec in COHORTS.items()]
    found: dict[str, Kube] = {}
    try:
        kube.submit(*classes, *cohorts)
        found |= {name: make(name) for name in QUOTAS}
        for name, quota in QUOTAS.items():
            if quota:
                spec: Manifest = {"weight": quota.weight, "gpus": quota.limits()}
                spec |= {"cohort": quota.cohort} if quota.cohort else {}
                found[name].submit(_object("GPUQuota", "default", spec))
        yield found
    finally:
        for each in found.values():
            # Namespaces take their time to go, and the models that quotas name count for all.
            each.kubectl("delete", "gpuquotas", "--all")
        kube.kubectl("delete", "gpucohorts", "--ignore-not-found", *COHORTS)
        kube.kubectl("delete", "priorityclasses", "--ignore-not-found", *PRIORITIES)


def _object(kind: str, name: str, spec: Manifest) -> Manifest:
    version = "gpupack.dev/v1beta1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
