# SPDX-License-Identifier: Apache-2.0
"""Replays traces through the policies of gpupack_core: what fits, what waits, what is wasted.

nodes, jobs, policy, Settings ─► Simulator ─► run() ─► Run: what became of every job, and samples
                                     └─ step(), advance(), state(), cluster: in between
"""

from gpupack_simulator.engine.events import Part
from gpupack_simulator.engine.sampling import Sampling
from gpupack_simulator.engine.settings import Settings
from gpupack_simulator.engine.simulator import Simulator
from gpupack_simulator.errors import (
    Fault,
    InvalidInput,
    InvalidJob,
    InvalidParameter,
    SimulatorError,
)
from gpupack_simulator.failures import Breakdown, FailureRates, drawn
from gpupack_simulator.job import Job, JobId, holder_of, job_of
from gpupack_simulator.queueing import DISCIPLINES
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
from gpupack_simulator.size import Size, size_of

__all__ = [
    "DISCIPLINES",
    "Breakdown",
    "Cause",
    "End",
    "FailureRates",
    "Fault",
    "InvalidInput",
    "InvalidJob",
    "InvalidParameter",
    "Job",
    "JobId",
    "JobRecord",
    "Loss",
    "Occupancy",
    "Outage",
    "Part",
    "Run",
    "Sample",
    "Sampling",
    "Settings",
    "Simulator",
    "SimulatorError",
    "Size",
    "State",
    "TimeUnit",
    "drawn",
    "holder_of",
    "job_of",
    "size_of",
]
