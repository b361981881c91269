# SPDX-License-Identifier: Apache-2.0
"""Matrix product: torch's, our Triton kernel's and NumPy's, checked against each other and timed.

    session        torch and Triton at the chosen size, and the result
    compare_numpy  torch on the GPU compared with NumPy on the CPU, from small to large
    threads        NumPy's number of threads

Only `session` and `compare_numpy` import torch.
"""

import importlib
from typing import Any

from gpupack_workloads.results import Result
from gpupack_workloads.settings import Options


def run(options: Options) -> Result:
    """Check and time all products; see `session.run`."""
    session: Any = importlib.import_module("gpupack_workloads.matmul.session")
    result: Result = session.run(options)
    return result
