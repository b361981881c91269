# SPDX-License-Identifier: Apache-2.0
"""GPUCohort: quotas, and cohorts of them, that lend to each other before they lend to others."""

from typing import Annotated, Final

from gpupack_crds.quota import Cohort, Limits, Order, Weight
from gpupack_crds.wire import Rule, Wire, described


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


NAME_RULES: Final = (
    Rule(
        "!has(self.spec) || !has(self.spec.parent) || self.spec.parent != self.metadata.name",
        "a cohort cannot be above itself; set spec.parent to another one, or remove it",
    ),
)
