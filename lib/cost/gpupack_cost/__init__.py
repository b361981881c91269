# SPDX-License-Identifier: Apache-2.0
"""GPU usage by tenant, job and hour, and its cost.

    Holding ─ allocated, change ─► sums by Key (hour, tenant, job, model) ─ statement ─► Lines
                    ▲                                                          ▲
                 Tariffs: price lists, each with its start ────────────────────┘

The package is pure: the cost collector of a cluster and the simulator sum by the same code.
`charged` defines how much of a GPU a share or a MIG slice counts, as it does for quotas.
"""

from gpupack_cost.amounts import (
    JOULES_PER_KWH,
    MILLI_SECONDS_PER_GPU_HOUR,
    SECONDS_PER_HOUR,
    Amounts,
    gpu_hours,
)
from gpupack_cost.holding import (
    Holding,
    Key,
    Part,
    Sums,
    allocated,
    difference,
    hour_of,
)
from gpupack_cost.labels import model_label, parse_label
from gpupack_cost.prices import ANY_MODEL, Prices, Tariff, Tariffs
from gpupack_cost.statement import Group, Line, statement, total
from gpupack_queue.charge import charge_of_grant

__all__ = [
    "ANY_MODEL",
    "JOULES_PER_KWH",
    "MILLI_SECONDS_PER_GPU_HOUR",
    "SECONDS_PER_HOUR",
    "Amounts",
    "Group",
    "Holding",
    "Key",
    "Line",
    "Part",
    "Prices",
    "Sums",
    "Tariff",
    "Tariffs",
    "allocated",
    "charge_of_grant",
    "difference",
    "gpu_hours",
    "hour_of",
    "model_label",
    "parse_label",
    "statement",
    "total",
]
