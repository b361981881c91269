# SPDX-License-Identifier: Apache-2.0
"""What compiled loops work on: a run's nodes, jobs, lanes and policy as arrays of whole numbers.

Units as in core's arrays: milli-GPU, milli-CPU, MiB.
"""

from typing import Any, NamedTuple

import numpy as np

from gpupack_core import FloatArray, IntArray
from gpupack_core.arrays import BoolArray

NOBODY = -1
"""No job, no node, no device."""

WAITS, RUNS, SUCCEEDED, DROPPED = range(4)
"""Of a job that has arrived."""


class Nodes(NamedTuple):
    """By row, and by row and device. All GPUs of a node are of one kind and healthy."""

    free_milli: IntArray
    free_shares: IntArray
    kind: IntArray
    """Of the node's GPUs, as in core's arrays; ABSENT where it has none."""
    free_cpu: IntArray
    free_memory: IntArray
    free_gpu_milli: IntArray
    idle: IntArray
    largest: IntArray
    """The most that is free on one GPU with a slot for a share."""
    order: IntArray
    """Ties go to the node with the smallest."""
    version: IntArray


class Lanes(NamedTuple):
    """Jobs that ask for the same, by number of the lane."""

    gpus: IntArray
    share: IntArray
    """Milli-GPU; 0: no share is asked for."""
    cpu: IntArray
    memory: IntArray
    accepts: BoolArray
    """By lane and kind, the last one of nodes without GPUs."""
    never: BoolArray
    """It fits not even the empty cluster, and who waits for that is refused."""
    first: IntArray
    """Who waits, by arrival: the first one, and the last."""
    last: IntArray
    closed: BoolArray
    """Its first one does not fit, unless something has been given back since."""
    seen: IntArray
    """By lane and row: the version of the row of which the score is known."""
    score: IntArray


class Jobs(NamedTuple):
    """By arrival. NaN: not yet."""

    lane: IntArray
    arrival: FloatArray
    duration: FloatArray
    state: IntArray
    started: FloatArray
    ended: FloatArray
    node: IntArray
    devices: IntArray
    """One bit for each."""
    behind: IntArray
    """Who waits in the lane behind this one."""
    finished_before: IntArray
    """How many had succeeded when this one arrived."""


class Ends(NamedTuple):
    """A heap of those who run, by when they end; of equals by who started first."""

    time: FloatArray
    number: IntArray
    job: IntArray


class Samples(NamedTuple):
    """In the order in which they were taken."""

    time: FloatArray
    arrived: IntArray
    allocated: IntArray
    queued: IntArray
    running: IntArray


STATE = np.dtype(
    [
        ("now", np.float64),
        ("area", np.float64),  # allocated milli-GPU times time, from measured_from on
        ("next_sample", np.float64),
        ("next_demand", np.float64),
        ("due", np.int64),  # the arrival after which the policy is to be informed
        ("within", np.int64),  # 1: in the middle of an instant, for that reason
        ("arrived", np.int64),  # jobs
        ("arrived_milli", np.int64),
        ("allocated_milli", np.int64),
        ("started", np.int64),
        ("finished", np.int64),
        ("running", np.int64),
        ("ending", np.int64),  # those who run and will end
        ("queued", np.int64),
        ("samples", np.int64),
        ("events", np.int64),
    ]
)
"""Where a run stands."""

State = Any
"""A record of STATE."""


class Rules(NamedTuple):
    """Of the run."""

    keeps: bool
    """Whether who does not fit waits."""
    until: float
    measured_from: float
    sample_every: float
    demand_step: float


class Prices(NamedTuple):
    """Of the policy, as it is informed now; parts as of core's fragmentation.py."""

    policy: int
    """BEST_FIT, FGD or BID_PRICE."""
    cpu_figures: IntArray
    first_line: IntArray
    shares: IntArray
    wholes: IntArray
    width: int
    total: int
    thresholds: IntArray
    """FGD: the least gains that score 1, 2, …"""
    worth: IntArray
    """Bid prices, from here on: of a gap of so many milli-GPU, in parts."""
    stranded: IntArray
    parts_per_cpu: int
    per_mille: int
    reach: int
    shift: int
    weight: int
    """Of U in per mille."""
    settled: int
    """θ in per mille."""
    by_kind: IntArray
    """K by kind, in parts times 1,000; or empty."""


BEST_FIT, FGD, BID_PRICE = range(3)
