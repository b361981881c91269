# SPDX-License-Identifier: Apache-2.0
"""A language model's training, from tokens to checkpoints, over all GPUs of all workers.

options, plan      options of the command line; defaults filled in, invalid sizes refused
memory_estimate    minimum memory of the training, checked before any work
language           batches of tokens: each step's are the same on every rank
operations, sdpa   torch's or ours; torch's attention is the first that takes the heads
model              the network; a loss comes out
parallel           ways to distribute it: data (DDP), shards (FSDP2), tensors, pipeline
training           steps from where the last attempt stopped, checkpoints, checks of losses
checkpoint         places, contents and checks of checkpoints
stopping           SIGTERM: all ranks agree to save and leave
verification       losses against a single process with torch's kernels
speed              tokens per second
session, summary   this worker's processes, their work, and the result
"""

import importlib
import os
from dataclasses import replace

from gpupack_workloads.errors import Interrupted, termination_error
from gpupack_workloads.results import Result
from gpupack_workloads.settings import Gang
from gpupack_workloads.signals import EndRequested
from gpupack_workloads.transformer.options import TransformerOptions, attempt_of


def run(options: TransformerOptions, gang: Gang) -> Result:
    """Run this worker's processes; return what the first reports.

    Raises:
        Interrupted: a signal stopped all processes, and they have saved their checkpoints, if any.
        WorkloadError: as `distributed.launch` does.
    """
    options = replace(options, attempt=attempt_of(os.environ))
    # The command line imports the options from here, and torch must wait until they are judged.
    try:
        session = importlib.import_module("gpupack_workloads.transformer.session")
        result: Result = session.run(options, gang)
    except EndRequested as request:
        raise Interrupted(
            f"{termination_error(request.sigval)}, before anything had begun"
        ) from request
    return result
