# SPDX-License-Identifier: Apache-2.0
"""Common parts of GPUQuota and GPUCohort: limits by model, and their usage."""

from typing import Annotated, Any, ClassVar, Final, Literal

from gpupack_crds.demand_forecast import DemandForecast
from gpupack_crds.wire import Rule, Timestamp, Wire, described

ANY_MODEL: Final = "*"
"""GPUs of all models that no quota names."""

MAX_MODELS: Final = 64
MAX_AMOUNT: Final = 1_000_000
MAX_AVERAGES: Final = 1000
"""Maximum averages in one status, so that it stays far below etcd's limit."""

Order = Literal["Strict", "BestEffort"]

COHORT_PATTERN: Final = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"

_BY_MODEL: Final[dict[str, Any]] = {
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["model"],
}


class ModelLimit(Wire, frozen=True):
    """Of the GPUs of one model. A share of a GPU counts by its part of time or memory."""

    model: Annotated[
        str,
        described(
            "A model, such as H100: a word of the product name is enough, case does not matter. A "
            "GPU counts under the longest name that any quota has for it. *: all models that no "
            "quota names.",
            min_length=1,
            max_length=64,
        ),
    ]
    nominal: Annotated[
        int, described("GPUs that are promised. Not used, they are lent.", ge=0, le=MAX_AMOUNT)
    ] = 0
    lending_limit: (
        Annotated[
            int,
            described(
                "How many of the promised GPUs others may use; absent: all that are not used.",
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
                "How many GPUs may be used beyond the promised ones; absent: all that are idle.",
                ge=0,
                le=MAX_AMOUNT,
            ),
        ]
        | None
    ) = None

    rules: ClassVar = (
        Rule(
            "!has(self.lendingLimit) || self.lendingLimit <= self.nominal",
            "lendingLimit is of the promised GPUs; set it to no more than nominal",
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
    """What is promised and used of one model, in GPUs: 2.5 are two GPUs and half of another."""

    model: Annotated[str, described("The model; * for those that no quota names.", max_length=64)]
    nominal: Annotated[str, described("Promised.", max_length=32)] = "0"
    used: Annotated[str, described("Used now, by jobs and pods.", max_length=32)] = "0"
    borrowed: Annotated[str, described("Used beyond what is promised.", max_length=32)] = "0"
    lent: Annotated[
        str, described("Of the promised GPUs, used by others at the most.", max_length=32)
    ] = "0"


class QuotaStatus(Wire, frozen=True):
    """What is used of it, a few seconds late."""

    observed_generation: Annotated[
        int, described("The generation of the spec that counts.", ge=0)
    ] = 0
    models: Annotated[
        tuple[ModelUse, ...],
        described("By model.", max_length=2 * MAX_MODELS, schema=_BY_MODEL),
    ] = ()
    nominal: Annotated[str, described("Promised, all models together.", max_length=32)] = ""
    used: Annotated[str, described("Used, all models together.", max_length=32)] = ""
    borrowed: Annotated[
        str, described("Used beyond what is promised, all models together.", max_length=32)
    ] = ""
    lent: Annotated[
        str, described("Promised and used by others, all models together.", max_length=32)
    ] = ""
    share: Annotated[
        str,
        described(
            "The largest part of any model of the cluster that is borrowed, by weight: the smaller "
            "goes first.",
            max_length=32,
        ),
    ] = ""
    running: Annotated[int, described("Jobs and pods that hold GPUs.", ge=0)] = 0
    waiting: Annotated[int, described("Jobs that wait for GPUs.", ge=0)] = 0
    average: Annotated[
        str,
        described(
            "GPUs used of late, all models together; with a half-life alone. Who used more of late "
            "comes later.",
            max_length=32,
        ),
    ] = ""
    averaged_at: Annotated[Timestamp, described("The moment of which averages are.")] | None = None
    problem: Annotated[
        str,
        described(
            "What of the spec does not count, and why; empty: all of it does.", max_length=512
        ),
    ] = ""


class TenantAverage(Wire, frozen=True):
    """What a namespace used of one model of late."""

    namespace: Annotated[str, described("The namespace.", max_length=63)]
    model: Annotated[str, described("The model; * for those that no quota names.", max_length=64)]
    gpus: Annotated[str, described("GPUs, on average.", max_length=32)]


class CohortStatus(QuotaStatus, frozen=True):
    """What is used of it, a few seconds late, and what a new scheduler has to know of before."""

    averages: Annotated[
        tuple[TenantAverage, ...],
        described(
            "What each namespace used of late; with a half-life alone. A scheduler reads it at its "
            "start.",
            max_length=MAX_AVERAGES,
            schema={"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
    demand_forecast: (
        Annotated[
            DemandForecast,
            described(
                "Of the cohort cluster: what requests are likely to come, by those that came. "
                "Placement policies that look ahead go by it."
            ),
        ]
        | None
    ) = None
