# SPDX-License-Identifier: Apache-2.0
"""Our matrix product in several types and shapes, compared with cuBLAS.

    options   options of the command line (no torch)
    problems  shapes, types and rivals
    session   checks, times, and makes the result

Only `problems` and `session` import torch.
"""

import importlib
from typing import Any

from gpupack_workloads.gemm.options import GemmOptions
from gpupack_workloads.results import Result


def run(options: GemmOptions) -> Result:
    """Measure the product; see `session.run`."""
    session: Any = importlib.import_module("gpupack_workloads.gemm.session")
    result: Result = session.run(options)
    return result
