# SPDX-License-Identifier: Apache-2.0
"""Replay of traces through the scheduling policies: what fits, what waits, what is wasted.

nodes, jobs, policy, Settings ─► Simulator ─► run() ─► Run: the record of every job, and samples
                     └─ in between: advance(), submit(), cancel(), state(), cluster
"""

from gpupack_simulator.disciplines import DISCIPLINES
from gpupack_simulator.engine.events import Component
from gpupack_simulator.engine.own_queue import JobQueue, Situation
from gpupack_simulator.engine.settings import Sampling, Settings
from gpupack_simulator.engine.simulator import Simulator
from gpupack_simulator.errors import (
    Fault,
    InvalidDecision,
    InvalidInput,
    InvalidJob,
    InvalidParameter,
    SimulatorError,
)
from gpupack_simulator.failures import Breakdown, FailureRates, draw_failures
from gpupack_simulator.job import Job, JobId, Size, holder_name, job_of, size_of
from gpupack_simulator.record import (
    Cause,
    End,
    JobRecord,
    Loss,
    Occupancy,
    Outage,
    Run,
    Sample,
    State,
    TimeUnit,
)

__all__ = [
    "DISCIPLINES",
    "Breakdown",
    "Cause",
    "Component",
    "End",
    "FailureRates",
    "Fault",
    "InvalidDecision",
    "InvalidInput",
    "InvalidJob",
    "InvalidParameter",
    "Job",
    "JobId",
    "JobQueue",
    "JobRecord",
    "Loss",
    "Occupancy",
    "Outage",
    "Run",
    "Sample",
    "Sampling",
    "Settings",
    "Simulator",
    "SimulatorError",
    "Situation",
    "Size",
    "State",
    "TimeUnit",
    "draw_failures",
    "holder_name",
    "job_of",
    "size_of",
]
