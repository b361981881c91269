# SPDX-License-Identifier: Apache-2.0
"""Fused attention, forward and backward: checked in 64 bits, timed beside cuDNN and flash.

options   what the command line asks for (no torch)
session   checks, times and tells
checks    compares with the reference
rivals    the same work by torch's attention
"""

import importlib
from typing import Any

from gpupack_workloads.attention.options import AttentionOptions
from gpupack_workloads.results import Result


def run(options: AttentionOptions) -> Result:
    """Check and time attention; see `session.run`."""
    session: Any = importlib.import_module("gpupack_workloads.attention.session")
    result: Result = session.run(options)
    return result
