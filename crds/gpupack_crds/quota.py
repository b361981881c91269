# SPDX-License-Identifier: Apache-2.0
"""Common parts of GPUQuota and GPUCohort: limits by model, and their usage."""

from typing import Annotated, Any, ClassVar, Final, Literal

from gpupack_crds.condition import BY_TYPE, Condition
from gpupack_crds.demand_forecast import DemandForecast
from gpupack_crds.wire import Rule, Timestamp, Wire, described

ANY_MODEL: Final = "*"
"""GPUs of all models that no quota names."""

MAX_MODELS: Final = 64
MAX_AMOUNT: Final = 1_000_000
MAX_AVERAGES: Final = 1000
"""Maximum averages in one status, so that it stays far below etcd's limit."""

CAPACITY_MISSING: Final = "CapacityMissing"
"""Type of the condition of a quota that the GPUs of the cluster cannot meet."""

Order = Literal["Strict", "BestEffort"]

COHORT_PATTERN: Final = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"

_BY_MODEL: Final[dict[str, Any]] = {
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["model"],
}


class ModelLimit(Wire, frozen=True):
    """Quota of one GPU model. A share counts by the larger of its parts of compute and memory."""

    model: Annotated[
        str,
        described(
            "GPU model, such as H100. A word of the product name is enough; case does not matter. "
            "A GPU counts under the longest name in any quota. *: all models that no quota names.",
            min_length=1,
            max_length=64,
        ),
    ]
    nominal: Annotated[
        int,
        described(
            "Guaranteed GPUs. While they are not used they are lent. Default: 0.",
            ge=0,
            le=MAX_AMOUNT,
        ),
    ] = 0
    lending_limit: (
        Annotated[
            int,
            described(
                "Maximum of the nominal GPUs that others may use. Default: all of them.",
                ge=0,
                le=MAX_AMOUNT,
            ),
        ]
        | None
    ) = None
    borrowing_limit: (
        Annotated[
            int,
            described(
                "Maximum GPUs beyond nominal. Default: no limit.",
                ge=0,
                le=MAX_AMOUNT,
            ),
        ]
        | None
    ) = None

    rules: ClassVar = (
        Rule(
            "!has(self.lendingLimit) || self.lendingLimit <= self.nominal",
            "lendingLimit must not exceed nominal; lower it or raise nominal",
            ".lendingLimit",
        ),
    )


Limits = Annotated[
    tuple[ModelLimit, ...],
    described("Limits by model.", max_length=MAX_MODELS, schema=_BY_MODEL),
]

Weight = Annotated[
    int,
    described(
        "Its part of what is borrowed, against that of others. 0: once it borrows, it comes last.",
        ge=0,
        le=1000,
    ),
]

Cohort = Annotated[
    str,
    described(
        "Name of a GPUCohort; absent: the cluster itself.", max_length=253, pattern=COHORT_PATTERN
    ),
]


class ModelUse(Wire, frozen=True):
    """Usage of one GPU model, in GPUs: 2.5 means two and a half."""

    model: Annotated[str, described("GPU model; * for models that no quota names.", max_length=64)]
    nominal: Annotated[str, described("Guaranteed GPUs.", max_length=32)] = "0"
    used: Annotated[str, described("GPUs that jobs and pods use now.", max_length=32)] = "0"
    borrowed: Annotated[str, described("GPUs that are used beyond nominal.", max_length=32)] = "0"
    lent: Annotated[str, described("Nominal GPUs that others use, at most.", max_length=32)] = "0"


class QuotaStatus(Wire, frozen=True):
    """Usage of the quota, a few seconds late. The extender writes it."""

    observed_generation: Annotated[
        int, described("Generation of the spec on which the status is based.", ge=0)
    ] = 0
    models: Annotated[
        tuple[ModelUse, ...],
        described("Usage by GPU model.", max_length=2 * MAX_MODELS, schema=_BY_MODEL),
    ] = ()
    nominal: Annotated[str, described("Guaranteed GPUs of all models.", max_length=32)] = ""
    used: Annotated[str, described("Used GPUs of all models.", max_length=32)] = ""
    borrowed: Annotated[str, described("GPUs of all models beyond nominal.", max_length=32)] = ""
    lent: Annotated[
        str, described("Nominal GPUs of all models that others use.", max_length=32)
    ] = ""
    share: Annotated[
        str,
        described(
            "Fair share value: borrowed GPUs as a part of the cluster's, divided by the weight; "
            "the largest of all models. The namespace with the smaller value comes first.",
            max_length=32,
        ),
    ] = ""
    running: Annotated[
        int, described("Number of jobs and standalone pods that hold GPUs.", ge=0)
    ] = 0
    waiting: Annotated[int, described("Number of pending jobs and standalone pods.", ge=0)] = 0
    average: Annotated[
        str,
        described(
            "Decayed average of used GPUs, all models; empty without a half-life. Larger recent "
            "use comes later in the queue.",
            max_length=32,
        ),
    ] = ""
    averaged_at: Annotated[Timestamp, described("Time to which the averages belong.")] | None = None
    problem: Annotated[
        str,
        described("Part of the spec that is ignored, and why. Empty: none.", max_length=512),
    ] = ""
    conditions: Annotated[
        tuple[Condition, ...],
        described(
            "CapacityMissing: the cluster has fewer GPUs of a model than the quota, or all quotas "
            "together, guarantee, or none of that model. It is a warning: the quota applies, and "
            "nodes may be added later.",
            max_length=8,
            schema=BY_TYPE,
        ),
    ] = ()

    @property
    def capacity_warning(self) -> str:
        """Why the cluster cannot meet the quota; empty: it can, or it was not checked."""
        found = (each for each in self.conditions if each.type == CAPACITY_MISSING)
        return next((each.message for each in found if each.status == "True"), "")


class TenantAverage(Wire, frozen=True):
    """Decayed average usage of one model by one namespace."""

    namespace: Annotated[str, described("The namespace.", max_length=63)]
    model: Annotated[str, described("The model; * for those that no quota names.", max_length=64)]
    gpus: Annotated[str, described("Average GPUs.", max_length=32)]


class CohortStatus(QuotaStatus, frozen=True):
    """Usage of the cohort, a few seconds late. The extender writes it."""

    averages: Annotated[
        tuple[TenantAverage, ...],
        described(
            "Decayed average usage of each namespace; only with a half-life. A new scheduler "
            "reads it at its start.",
            max_length=MAX_AVERAGES,
            schema={"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
    demand_forecast: (
        Annotated[
            DemandForecast,
            described(
                "Expected requests, learned from earlier ones; only in GPUCohort cluster. "
                "Placement policies that look ahead use it."
            ),
        ]
        | None
    ) = None
