# SPDX-License-Identifier: Apache-2.0
"""A language model's training, from tokens to checkpoints, over all GPUs of all workers.

options, plan      what is asked for; defaults filled in, sizes that cannot be refused
need               memory that the training needs at least, asked before any work
language           batches of tokens: each step's are the same whoever computes them
operations, sdpa   torch's or ours; torch's attention is the first that takes the heads
model              the network; a loss comes out
parallel           ways to spread it: data (DDP), shards (FSDP2), tensors, pipeline
training           steps from where the last attempt stopped, checkpoints, losses that are judged
checkpoint         where checkpoints lie, what is in them, whether they are whole
stopping           SIGTERM: all ranks agree to save and leave
verification       losses against a single process with torch's kernels
speed              tokens per second
session, summary   this worker's processes, what each does, and what it reports
"""

import importlib
import os
from dataclasses import replace

from gpupack_workloads.errors import Interrupted, told_to_end
from gpupack_workloads.results import Result
from gpupack_workloads.settings import Gang
from gpupack_workloads.signals import Told
from gpupack_workloads.transformer.options import TransformerOptions, attempt_of


def run(options: TransformerOptions, gang: Gang) -> Result:
    """Run this worker's processes; return what the first reports.

    Raises:
        Interrupted: all were told to end, and have saved where they keep checkpoints.
        WorkloadError: as `distributed.launch` does.
    """
    options = replace(options, attempt=attempt_of(os.environ))
    # The command line imports the options from here, and torch must wait until they are judged.
    try:
        session = importlib.import_module("gpupack_workloads.transformer.session")
        result: Result = session.run(options, gang)
    except Told as told:
        raise Interrupted(f"{told_to_end(told.sigval)}, before anything had begun") from told
    return result
