# SPDX-License-Identifier: Apache-2.0
"""A language model's training, from tokens to checkpoints, over all GPUs of all workers.

options, plan      what is asked for; defaults filled in, sizes that cannot be refused
need               memory that the training needs at least, asked before any work
language           batches of tokens: each step's are the same whoever computes them
operations         attention, loss and product, torch's or ours, and what lies between them
sdpa, loss         torch's attention, the first that takes the heads; the loss by both makers
pointwise          what lies between products, compiled or not
model              the network; a loss comes out
parallel           one file per way to spread it: data (DDP), shards (FSDP2), tensors, pipeline
shards             products of which each rank has a part, for the way by tensors
training           steps from where the last attempt stopped, checkpoints, losses that are judged
folder, saving     where checkpoints lie, and what is in them
shared, intact     whether all ranks see one folder, and nothing of a checkpoint is missing
stopping           SIGTERM: all ranks agree to save and leave
start, farewell    starts the processes; whether all that were told to end have saved
curve              losses against a single process with torch's kernels
speed, flops       tokens per second, and operations per token for the share of the peak
rank, summary      what one process does, and what it reports
"""

import importlib
import os
from dataclasses import replace

from gpupack_workloads.results import Result
from gpupack_workloads.settings import Gang
from gpupack_workloads.transformer.options import TransformerOptions, attempt_of


def run(options: TransformerOptions, gang: Gang) -> Result:
    """Run this worker's processes; return what the first reports.

    Raises:
        Interrupted: all were told to end, and have saved where they keep checkpoints.
        WorkloadError: as `distributed.launch` does.
    """
    options = replace(options, attempt=attempt_of(os.environ))
    # The command line imports the options from here, and torch must wait until they are judged.
    start = importlib.import_module("gpupack_workloads.transformer.start")
    result: Result = start.run(options, gang)
    return result
