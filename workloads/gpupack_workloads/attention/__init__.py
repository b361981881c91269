# SPDX-License-Identifier: Apache-2.0
"""Fused attention, forward and backward: checked in 64 bits, timed against cuDNN and flash.

options   options of the command line (no torch)
session   checks, times and reports
checks    compares with the reference
rivals    the same work by torch's attention
lengths   lengths of sequences that differ
varlen    session for sequences that are packed
packed    the same work by others
paged     session for one token each over keys and values in pages
decoding  the same work by others
"""

import importlib
from typing import Any

from gpupack_workloads.attention.options import DENSE, PAGED, VARLEN, AttentionOptions
from gpupack_workloads.results import Result

MODULES = {DENSE: "session", VARLEN: "varlen", PAGED: "paged"}


def run(options: AttentionOptions) -> Result:
    """Check and time attention; see `run` of the layout's session."""
    session: Any = importlib.import_module(f"gpupack_workloads.attention.{MODULES[options.layout]}")
    result: Result = session.run(options)
    return result
