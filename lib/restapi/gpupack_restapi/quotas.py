# SPDX-License-Identifier: Apache-2.0
"""GPUQuotas: now, and in the last hour."""

import datetime as dt

import msgspec


class QuotaView(msgspec.Struct, frozen=True):
    """A namespace's quota with its usage, from its GPUQuota.

    `problem`: what of it is ignored, or what the cluster lacks for it. `job_order`: as in the spec.
    `max_run_seconds`: the maximum run time by its cohorts; null: there is none.
    """

    namespace: str
    cohort: str
    nominal: str
    used: str
    borrowed: str
    lent: str
    running: int
    waiting: int
    problem: str
    job_order: str = ""
    max_run_seconds: int | None = None


class Quotas(msgspec.Struct, frozen=True):
    """Quotas by namespace.

    `may_list` is false for a caller that may list GPUQuotas in no namespace that has one, nor in
    its own.
    """

    quotas: tuple[QuotaView, ...]
    may_list: bool = True


class QuotaSeries(msgspec.Struct, frozen=True):
    """A quota's figures, in GPUs, one for each of the answer's timestamps; null: unknown."""

    namespace: str
    cohort: str
    nominal: tuple[float | None, ...]
    used: tuple[float | None, ...]
    borrowed: tuple[float | None, ...]


class History(msgspec.Struct, frozen=True):
    """Histories by namespace; `next` is empty where there are no more.

    `total` counts the quotas that the caller may see. Figures are kept for the first 1,024 quotas
    of the cluster by name: where there are more, the pages hold fewer than `total`.
    """

    interval_seconds: float
    timestamps: tuple[dt.datetime, ...]
    quotas: tuple[QuotaSeries, ...]
    total: int
    next: str = ""
