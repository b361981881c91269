# SPDX-License-Identifier: Apache-2.0
"""A small CNN on MNIST- or CIFAR-10-shaped data: what each training technique gains and costs."""

import importlib

from gpupack_workloads.results import Result
from gpupack_workloads.train_cnn.options import CnnOptions


def run(options: CnnOptions) -> Result:
    """Train with one technique after the other; return times, memory and accuracy of each.

    Raises:
        BadArgument: the folder holds no such data.
        OutOfMemory: batches of this size do not fit.
        WrongResult: a technique changes what is learnt.
    """
    # The command line imports the options from here, and torch must wait until they are judged.
    session = importlib.import_module("gpupack_workloads.train_cnn.session")
    result: Result = session.run(options)
    return result
