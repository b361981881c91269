# SPDX-License-Identifier: Apache-2.0
"""The CNN of `train-cnn` by TensorFlow: one MirroredStrategy in a worker, or over a gang's workers.

command ─► here ─► setup           what the container says: workers, memory; by the Python API
               └─► supervised ─► session    in a process of its own, which has TensorFlow
                                 ├─ training    epochs over all replicas
                                 ├─ replicas    are they one training: gradients, weights
                                 └─ outcome     is it verified, and the result
"""

import importlib
import os

from gpupack_workloads.errors import BadArgument
from gpupack_workloads.results import Result
from gpupack_workloads.tensorflow.options import TensorFlowOptions


def run(options: TensorFlowOptions) -> Result:
    """Train over all GPUs of all workers.

    Raises:
        BadArgument: of what the container says of itself something cannot be, or TensorFlow or the
            Python API is not installed.
        WorkloadError: as `supervised.run_supervised` does.
    """
    # The Python API is imported when the arguments are judged, as torch is elsewhere.
    try:
        setup_for = importlib.import_module("gpupack_workloads.tensorflow.setup").setup_for
        supervised = importlib.import_module("gpupack_workloads.tensorflow.supervised")
    except ModuleNotFoundError as error:
        raise BadArgument(
            f"there is no Python package {error.name}: use the image that is called tensorflow, or"
            " from a checkout `pip install ./client './workloads[tensorflow]'`"
        ) from error
    setup = setup_for(options, os.environ)
    result: Result = supervised.run_supervised(options, setup)
    return result
