# SPDX-License-Identifier: Apache-2.0
"""The choice of nodes and GPUs for jobs. Pure: no I/O, no clock, no randomness.

Node, Device ─────► Cluster ─┬─ decide(cluster, request, policy) ─► Placement | Refusal
Placement ─ take, adopt ─────┘  plan_gang(cluster, gang, policy) ─► Placement per worker | Refusal
"""

from gpupack_devices.errors import DecisionError, Invalid, InvalidInventory, InvalidRequest
from gpupack_devices.models import matches_model, require_model
from gpupack_devices.units import (
    WHOLE_GPU,
    DeviceUuid,
    Holder,
    MiB,
    MilliCpu,
    MilliGpu,
    NodeName,
    memory_text,
)
from gpupack_placement.arrays import Arrays, BoolArray, FloatArray, IntArray
from gpupack_placement.cluster import Cluster, Free
from gpupack_placement.decide import Ranked, choose, decide, explain, nearly, rank
from gpupack_placement.demand_forecast import Demand, DemandForecast, RequestMix
from gpupack_placement.demand_forecast_document import dump_forecast, load_forecast
from gpupack_placement.errors import (
    AlreadyHeld,
    DuplicateDevice,
    InvalidPlacement,
    InvalidScores,
    InvalidSelector,
    InvalidSnapshot,
    LedgerConflict,
    NotHeld,
    OverAllocated,
    UnknownDevice,
    UnknownNode,
    UnknownPolicy,
)
from gpupack_placement.extended import MAX_AMOUNT, NO_AMOUNTS, Amounts, amounts
from gpupack_placement.gang import choose_gang, plan_gang, why_not
from gpupack_placement.learner import DemandLearner
from gpupack_placement.miss import NearestMiss, Resource
from gpupack_placement.model import MAX_SPEED, USUAL_SPEED, Device, Effect, Health, Node, Taint
from gpupack_placement.placement import Grant, Placement
from gpupack_placement.policies import DEFAULT_POLICY, POLICIES, policy_named
from gpupack_placement.policies.policy import Policy
from gpupack_placement.reasons import Count, Reason, Refusal
from gpupack_placement.refusals import never_fits
from gpupack_placement.request import (
    REPLICA,
    WORKER,
    Gang,
    Interconnect,
    Request,
    Role,
    Share,
    Slices,
    Spread,
)
from gpupack_placement.selector import (
    NodeSelector,
    Operator,
    Requirement,
    Term,
    Toleration,
    TolerationOperator,
)
from gpupack_placement.snapshot import dump, load

__all__ = [
    "DEFAULT_POLICY",
    "MAX_AMOUNT",
    "MAX_SPEED",
    "NO_AMOUNTS",
    "POLICIES",
    "REPLICA",
    "USUAL_SPEED",
    "WHOLE_GPU",
    "WORKER",
    "AlreadyHeld",
    "Amounts",
    "Arrays",
    "BoolArray",
    "Cluster",
    "Count",
    "DecisionError",
    "Demand",
    "DemandForecast",
    "DemandLearner",
    "Device",
    "DeviceUuid",
    "DuplicateDevice",
    "Effect",
    "FloatArray",
    "Free",
    "Gang",
    "Grant",
    "Health",
    "Holder",
    "IntArray",
    "Interconnect",
    "Invalid",
    "InvalidInventory",
    "InvalidPlacement",
    "InvalidRequest",
    "InvalidScores",
    "InvalidSelector",
    "InvalidSnapshot",
    "LedgerConflict",
    "MiB",
    "MilliCpu",
    "MilliGpu",
    "NearestMiss",
    "Node",
    "NodeName",
    "NodeSelector",
    "NotHeld",
    "Operator",
    "OverAllocated",
    "Placement",
    "Policy",
    "Ranked",
    "Reason",
    "Refusal",
    "Request",
    "RequestMix",
    "Requirement",
    "Resource",
    "Role",
    "Share",
    "Slices",
    "Spread",
    "Taint",
    "Term",
    "Toleration",
    "TolerationOperator",
    "UnknownDevice",
    "UnknownNode",
    "UnknownPolicy",
    "amounts",
    "choose",
    "choose_gang",
    "decide",
    "dump",
    "dump_forecast",
    "explain",
    "load",
    "load_forecast",
    "matches_model",
    "memory_text",
    "nearly",
    "never_fits",
    "plan_gang",
    "policy_named",
    "rank",
    "require_model",
    "why_not",
]
