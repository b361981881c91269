# SPDX-License-Identifier: Apache-2.0
"""ResNet-50 trained on synthetic ImageNet data by all GPUs of all workers: images per second."""

import importlib

from gpupack_workloads.resnet50.options import ResNetOptions
from gpupack_workloads.results import Result
from gpupack_workloads.settings import Gang


def run(options: ResNetOptions, gang: Gang) -> Result:
    """Run this worker's processes; return what the first reports.

    Raises:
        WorkloadError: as `distributed.launch` does.
    """
    # The command line imports the options from here, and torch must wait until they are judged.
    launch = importlib.import_module("gpupack_workloads.distributed.launch").launch
    measure = importlib.import_module("gpupack_workloads.resnet50.session").measure
    result: Result = launch(measure, options, gang)
    return result
