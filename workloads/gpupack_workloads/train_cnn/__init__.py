# SPDX-License-Identifier: Apache-2.0
"""A small CNN on real or made-up images: whole trainings, or what techniques gain and cost."""

import importlib

from gpupack_workloads.results import Result
from gpupack_workloads.settings import Gang
from gpupack_workloads.train_cnn.options import CnnOptions


def run(options: CnnOptions, gang: Gang | None = None) -> Result:
    """Train by epochs over all workers, or on one device with one technique after the other.

    Args:
        options: which of them, and on what.
        gang: this worker's place among those that train by epochs; None: it is alone.

    Raises:
        BadArgument: the folder holds no such data.
        OutOfMemory: batches of this size do not fit.
        WrongResult: nothing is learnt, replicas differ, or a technique changes what is learnt.
        WorkloadError: as `distributed.launch` does.
    """
    # The command line imports the options from here, and torch must wait until they are judged.
    result: Result
    if options.by_epochs:
        launch = importlib.import_module("gpupack_workloads.distributed.launch").launch
        measure = importlib.import_module("gpupack_workloads.train_cnn.epochs_session").measure
        result = launch(measure, options, gang or Gang())
    else:
        result = importlib.import_module("gpupack_workloads.train_cnn.session").run(options)
    return result
