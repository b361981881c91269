# SPDX-License-Identifier: Apache-2.0
"""The served network's weights: a checkpoint of `transformer`, or made from the seed, untrained."""

import importlib
from pathlib import Path

import torch

from gpupack_workloads.inference_server.budget import Sizes
from gpupack_workloads.transformer.model import Decoder, new_decoder
from gpupack_workloads.transformer.operations import operations

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


def decoder_for(
    sizes: Sizes, *, checkpoint: Path | None, seed: int, device: torch.device
) -> Decoder:
    """Return the network, its weights in 32 bits yet.

    Raises:
        BadArgument: there is no checkpoint of this network.
    """
    decoder = new_decoder(
        sizes.shape,
        operations("torch", compiled=False),
        dtype=DTYPES[sizes.dtype],
        recompute=False,
        seed=seed,
        device=device,
    )
    if checkpoint is not None:
        # Importing torch's checkpoints takes a twentieth of a server's start.
        reader = importlib.import_module("gpupack_workloads.inference_server.checkpoint")
        reader.load(decoder, checkpoint, sizes.shape)
    return decoder
