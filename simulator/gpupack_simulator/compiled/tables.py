# SPDX-License-Identifier: Apache-2.0
"""The tables of compiled loops: a run's nodes, jobs, classes and policy as arrays of whole numbers.

Units as in placement's arrays: milli-GPU, milli-CPU, MiB.
"""

from typing import Any, NamedTuple

import numpy as np

from gpupack_placement import FloatArray, IntArray
from gpupack_placement.arrays import BoolArray

NO_HOLDER = -1
"""No job, no node, no device."""

WAITS, RUNS, SUCCEEDED, DROPPED = range(4)
"""State of a job that has arrived."""


class Nodes(NamedTuple):
    """Nodes, by row, and by row and device. All GPUs of a node are of one kind and healthy."""

    free_milli: IntArray
    free_shares: IntArray
    kind: IntArray
    """Kind of the node's GPUs, as in placement's arrays; ABSENT: it has none."""
    free_cpu: IntArray
    free_memory: IntArray
    free_gpu_milli: IntArray
    idle: IntArray
    largest: IntArray
    """Largest free capacity of one GPU with a slot for a share."""
    order: IntArray
    """Ties go to the node with the smallest value."""
    version: IntArray


class RequestClasses(NamedTuple):
    """Lanes by number: a class has the jobs with one request."""

    gpus: IntArray
    share: IntArray
    """Milli-GPU; 0: no share is requested."""
    cpu: IntArray
    memory: IntArray
    accepts: BoolArray
    """By class and kind; the last column stands for nodes without GPUs."""
    never: BoolArray
    """The request does not fit on the empty cluster; its jobs are refused instead of queued."""
    first: IntArray
    """First waiting job by arrival; `last`: the last one."""
    last: IntArray
    closed: BoolArray
    """The first job does not fit, unless capacity has been given back since."""
    seen: IntArray
    """By class and row: the version of the row for which the score is known."""
    score: IntArray


class Jobs(NamedTuple):
    """Jobs, by arrival. NaN: not yet."""

    request_class: IntArray
    arrival: FloatArray
    duration: FloatArray
    state: IntArray
    started: FloatArray
    ended: FloatArray
    node: IntArray
    devices: IntArray
    """One bit for each device."""
    behind: IntArray
    """Next waiting job in the class_."""
    finished_before: IntArray
    """Number of jobs that had succeeded when this one arrived."""


class Ends(NamedTuple):
    """A heap of running jobs, by their ends; ties go by the order of their starts."""

    time: FloatArray
    number: IntArray
    job: IntArray


class Samples(NamedTuple):
    """Samples, in the order in which they were taken."""

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
        ("within", np.int64),  # 1: in the middle of an instant, since the policy is due
        ("arrived", np.int64),  # jobs
        ("arrived_milli", np.int64),
        ("allocated_milli", np.int64),
        ("started", np.int64),
        ("finished", np.int64),
        ("running", np.int64),
        ("ending", np.int64),  # running jobs with a finite duration
        ("queued", np.int64),
        ("samples", np.int64),
        ("events", np.int64),
    ]
)
"""State of a run."""

State = Any
"""A record of STATE."""


class Rules(NamedTuple):
    """Rules of the run."""

    keeps: bool
    """Whether jobs that do not fit wait."""
    until: float
    measured_from: float
    sample_every: float
    demand_step: float


class Prices(NamedTuple):
    """Figures of the policy in its present state; parts as in placement's fragmentation.py."""

    policy: int
    """BEST_FIT, FGD or BID_PRICE."""
    cpu_figures: IntArray
    first_line: IntArray
    shares: IntArray
    wholes: IntArray
    width: int
    total: int
    thresholds: IntArray
    """FGD: the smallest gains that score 1, 2, …"""
    worth: IntArray
    """For bid prices, as all fields below: value of a gap by its milli-GPU, in parts."""
    stranded: IntArray
    parts_per_cpu: int
    per_mille: int
    reach: int
    shift: int
    weight: int
    """Weight of U in per mille."""
    settled: int
    """θ in per mille."""
    by_kind: IntArray
    """K by kind, in parts times 1,000; or empty."""


BEST_FIT, FGD, BID_PRICE = range(3)
