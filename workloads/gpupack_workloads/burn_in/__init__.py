# SPDX-License-Identifier: Apache-2.0
"""Loads one GPU for two minutes, and gives a verdict: healthy, or the reason why not.

    limits    what is judged, with which limits by default (no torch)
    models    what GPUs should do at least: a table by model (no torch)
    peers     the speeds of the other workers' GPUs, where no table knows the model
    checks    measurements compared with their limits: pure decisions (no torch)
    sensors   temperature, power, clocks and error counters, only ever read (no torch)
    patterns  what is written into memory and must be read back
    memory    writes patterns over the memory and compares
    compute   products whose results must repeat bit by bit and be right
    copies    bandwidth within the device and to and from the host
    session   all parts in the requested order and time

Only `session`, `peers` and what they need import torch.
"""

import importlib
from typing import Any

from gpupack_workloads.burn_in.limits import BurnInOptions
from gpupack_workloads.results import Result


def run(options: BurnInOptions) -> Result:
    """Try one GPU; see `session.run`."""
    session: Any = importlib.import_module("gpupack_workloads.burn_in.session")
    result: Result = session.run(options)
    return result
