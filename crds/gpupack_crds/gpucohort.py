# SPDX-License-Identifier: Apache-2.0
"""GPUCohort: quotas, and cohorts of them, that lend to each other before they lend to others.

The cohort `cluster` is the root of the tree. The extender creates it where averages over time are
kept, for the namespaces that are in no other cohort.
"""

from typing import Annotated, Final, Literal

from gpupack_crds import names
from gpupack_crds.quota import Cohort, Limits, Order, Weight
from gpupack_crds.wire import Rule, Wire, described

CLUSTER_NAME: Final = "cluster"
"""Name of the GPUCohort that is the cluster itself, the root of all others."""


class IdlePods(Wire, frozen=True):
    """What becomes of pods of their own whose GPUs are idle."""

    after_seconds: Annotated[
        int,
        described(
            "For longer than so long none of a pod's GPUs ran anything: it is reported.",
            ge=1,
            le=31_536_000,
        ),
    ]
    reclaim: Annotated[
        Literal["Never", "OptedIn"],
        described(
            "Never: it is reported and goes on. OptedIn: pods that are annotated "
            f"{names.RECLAIM_ANNOTATION}: true are evicted, as their PodDisruptionBudgets allow."
        ),
    ] = "Never"


class GpuCohortSpec(Wire, frozen=True):
    """Where it stands in the tree of cohorts, and limits for all below it together."""

    parent: Cohort | None = None
    weight: Weight = 1
    gpus: Limits = ()
    order: (
        Annotated[
            Order,
            described(
                "Strict: nobody below it goes before its first job. BestEffort: who fits goes "
                "before who does not. Absent: as above it."
            ),
        ]
        | None
    ) = None
    min_run_seconds: (
        Annotated[
            int,
            described(
                "How long a job below it runs before it may be stopped for another; absent: as "
                "above it.",
                ge=0,
                le=31_536_000,
            ),
        ]
        | None
    ) = None
    idle_pods: (
        Annotated[
            IdlePods,
            described(
                "What becomes of pods of their own below it that hold GPUs and use none of them; "
                "absent: as above it, and where nobody says anything they are left alone."
            ),
        ]
        | None
    ) = None
    failed_gpu_pods: (
        Annotated[
            Literal["Keep", "Evict"],
            described(
                "What becomes of pods of their own below it one of whose GPUs failed. Keep: they "
                "are told and go on as well as they can. Evict: they are evicted, as their "
                "PodDisruptionBudgets allow. Absent: as above it, and Keep where nobody says "
                "anything."
            ),
        ]
        | None
    ) = None


NAME_RULES: Final = (
    Rule(
        "!has(self.spec) || !has(self.spec.parent) || self.spec.parent != self.metadata.name",
        "a cohort cannot be above itself; set spec.parent to another one, or remove it",
    ),
    Rule(
        f"self.metadata.name != '{CLUSTER_NAME}' || !has(self.spec) || !(has(self.spec.parent) || "
        "has(self.spec.gpus) || has(self.spec.order) || has(self.spec.minRunSeconds))",
        f"GPUCohort {CLUSTER_NAME} is the cluster itself, ruled by the chart's values (queue); "
        "leave its spec empty, or choose another name",
    ),
)
