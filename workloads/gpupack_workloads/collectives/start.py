# SPDX-License-Identifier: Apache-2.0
"""Starts the ranks; with `tune`, once more for each of NCCL's settings."""

import torch

from gpupack_workloads.collectives.options import CollectivesOptions
from gpupack_workloads.collectives.plots import plot, require_plots
from gpupack_workloads.collectives.rank import DEFAULT_BYTES, measure_all
from gpupack_workloads.collectives.tune import compared, require_tunable, tried
from gpupack_workloads.distributed.launch import launch
from gpupack_workloads.errors import BadArgument
from gpupack_workloads.results import Result
from gpupack_workloads.settings import Gang


def start(options: CollectivesOptions, gang: Gang) -> Result:
    """Measure, then draw.

    Raises:
        BadArgument: plots are wanted and cannot be drawn, settings cannot be tried here, or the
            first buffer is larger than the largest one.
        WrongResult: what arrived is wrong.
        OutOfMemory: the largest buffer does not fit.
    """
    require_range(options, gpus=torch.cuda.is_available() or options.require_gpu)
    if options.plots is not None:
        require_plots(options.plots)
    if options.tune:
        require_tunable(gang, gpus=torch.cuda.is_available())
    result = launch(measure_all, options, gang)
    if options.tune:
        result = compared(result, tried(options, gang))
    if options.plots is not None and gang.index == 0:
        plot(result, options.plots)
    return result


def require_range(options: CollectivesOptions, *, gpus: bool) -> None:
    """Make sure that the first buffer is none larger than the largest, which the device decides.

    Raises:
        BadArgument: it is larger.
    """
    largest = options.size or DEFAULT_BYTES["cuda" if gpus else "cpu"]
    if options.smallest > largest:
        raise BadArgument(
            f"--smallest {options.smallest} is above the largest buffer here, {largest} bytes:"
            " give --size, too"
        )
