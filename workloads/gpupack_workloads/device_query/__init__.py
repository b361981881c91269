# SPDX-License-Identifier: Apache-2.0
"""Reports the properties of every GPU of this container, as CUDA's sample deviceQuery and more.

    facts     attributes with units, and whether sources agree (no torch)
    session   queries torch, the driver and NVML, and makes the result

Only `session` imports torch.
"""

import importlib
from typing import Any

from gpupack_workloads.results import Result
from gpupack_workloads.settings import Options


def run(options: Options) -> Result:
    """Ask about every device; see `session.run`."""
    session: Any = importlib.import_module("gpupack_workloads.device_query.session")
    result: Result = session.run(options)
    return result
