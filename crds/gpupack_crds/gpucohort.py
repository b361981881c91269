# SPDX-License-Identifier: Apache-2.0
"""GPUCohort: quotas, and cohorts of them, that lend to each other before they lend to others.

The cohort `cluster` is the root of the tree. The extender creates it where averages over time are
kept, for the namespaces that are in no other cohort.
"""

from typing import Annotated, Final, Literal

from gpupack_crds.quota import Cohort, Limits, Order, Weight
from gpupack_crds.wire import Rule, Wire, described

CLUSTER_NAME: Final = "cluster"
"""Name of the GPUCohort that is the cluster itself, the root of all others."""


class IdlePods(Wire, frozen=True):
    """Treatment of standalone pods whose GPUs are idle."""

    after_seconds: Annotated[
        int,
        described(
            "Seconds without any activity on all GPUs of a pod after which the pod is reported as "
            "idle.",
            ge=1,
            le=31_536_000,
        ),
    ]
    reclaim: Annotated[
        Literal["Never", "OptedIn"],
        described(
            "Never: idle pods are reported and continue. OptedIn: idle pods with the annotation "
            "gpupack.dev/reclaim-when-idle: true are evicted, within their PodDisruptionBudgets. "
            "Default: Never."
        ),
    ] = "Never"


class GpuCohortSpec(Wire, frozen=True):
    """Position in the tree of cohorts, and limits of all members together."""

    parent: Cohort | None = None
    weight: Weight = 1
    gpus: Limits = ()
    order: (
        Annotated[
            Order,
            described(
                "Strict: no job of the cohort starts before its queue head. BestEffort: a job "
                "that fits may start before an earlier one that does not. Default: that of the "
                "parent."
            ),
        ]
        | None
    ) = None
    min_run_seconds: (
        Annotated[
            int,
            described(
                "Minimum seconds for which a job of the cohort runs before it can be preempted. "
                "Default: that of the parent.",
                ge=0,
                le=31_536_000,
            ),
        ]
        | None
    ) = None
    max_run_seconds: (
        Annotated[
            int,
            described(
                "Maximum seconds for which a job or standalone pod of the cohort runs, over all "
                "attempts. A longer activeDeadlineSeconds does not count. Default: that of the "
                "parent; without one, no limit.",
                ge=1,
                le=31_536_000,
            ),
        ]
        | None
    ) = None
    idle_pods: (
        Annotated[
            IdlePods,
            described(
                "What happens to standalone pods of the cohort that do not use their GPUs. "
                "Default: that of the parent; without one, nothing."
            ),
        ]
        | None
    ) = None
    failed_gpu_pods: (
        Annotated[
            Literal["Keep", "Evict"],
            described(
                "What happens to standalone pods of the cohort with a failed GPU. Keep: they are "
                "notified by a condition and an event. Evict: they are evicted, within their "
                "PodDisruptionBudgets. Default: that of the parent; without one, Keep."
            ),
        ]
        | None
    ) = None


NAME_RULES: Final = (
    Rule(
        "!has(self.spec) || !has(self.spec.parent) || self.spec.parent != self.metadata.name",
        "a cohort cannot be its own parent; set spec.parent to another cohort, or remove it",
    ),
    Rule(
        f"self.metadata.name != '{CLUSTER_NAME}' || !has(self.spec) || !(has(self.spec.parent) || "
        "has(self.spec.gpus) || has(self.spec.order) || has(self.spec.minRunSeconds))",
        f"GPUCohort {CLUSTER_NAME} is the whole cluster, whose limits and order are chart values "
        "(queue); remove parent, gpus, order and minRunSeconds, or choose another name",
    ),
)
