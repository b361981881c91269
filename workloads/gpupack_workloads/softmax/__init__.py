# SPDX-License-Identifier: Apache-2.0
"""Softmax forward and backward, compared with torch's and a plain copy.

    options   options of the command line (no torch)
    measure   checks and times one length of rows in one type
    session   all lengths and types, and the result

Only `measure` and `session` import torch.
"""

import importlib
from typing import Any

from gpupack_workloads.results import Result
from gpupack_workloads.softmax.options import SoftmaxOptions


def run(options: SoftmaxOptions) -> Result:
    """Measure softmax; see `session.run`."""
    session: Any = importlib.import_module("gpupack_workloads.softmax.session")
    result: Result = session.run(options)
    return result
