# SPDX-License-Identifier: Apache-2.0
"""What to train on a kind of device."""

from dataclasses import dataclass

import torch

from gpupack_workloads.devices import Device
from gpupack_workloads.errors import BadArgument
from gpupack_workloads.resnet50.options import NO_COMPILER, ResNetOptions
from gpupack_workloads.training.precision import Precision

SIMULATED_BATCH = 4
SMALLEST_BATCH = 16
LARGEST_BATCH = 1024
# Measured, of an image of 224 x 224.
REFERENCE_BYTES = 90 * 10**6


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A run with every default filled in.

    Attributes:
        pool: batches in turn; several on a GPU, so that none stays in its cache.
    """

    size: int
    batch_size: int
    steps: int
    pool: int
    warm_up: int
    precision: Precision
    channels_last: bool
    folded_stem: bool
    compile_mode: str
    coupling: str
    bucket_mib: int
    seed: int
    learning_rate: float


def plan_for(options: ResNetOptions, device: Device) -> Plan:
    """Fill in what suits the device.

    Raises:
        BadArgument: the format or the compiler needs a GPU.
    """
    simulated = device.simulated
    dtype = options.dtype or ("fp32" if simulated else "bf16")
    mode = options.compile_mode or (NO_COMPILER if simulated else "default")
    if simulated and (dtype != "fp32" or mode != NO_COMPILER):
        raise BadArgument("without a GPU resnet50 computes in fp32 and is not compiled")
    batch_size = options.batch_size or usual_batch(device)
    return Plan(
        size=options.size or (32 if simulated else 224),
        batch_size=batch_size,
        steps=options.steps or (3 if simulated else 40),
        pool=1 if simulated else 4,
        warm_up=0 if simulated else 10,
        precision=Precision(dtype),
        channels_last=options.channels_last,
        folded_stem=options.channels_last,
        compile_mode=mode,
        coupling=options.coupling,
        bucket_mib=options.bucket_mib,
        seed=options.seed,
        # 0.1 per 256 images (Goyal et al., 2017), without its warm-up: half of it.
        learning_rate=0.05 * batch_size / 256 if not simulated else 0.05,
    )


def usual_batch(device: Device) -> int:
    """Return the images per step that a device's memory is good for.

    Larger is faster: 1024 by 2.5% over 512 on an H200, and gradients travel half as often. The
    plain reference in 32 bits, which is freed before anything is timed, decides what fits.
    """
    if device.simulated:
        return SIMULATED_BATCH
    memory = torch.cuda.get_device_properties(device.torch).total_memory
    return fitting_batch(memory)


def fitting_batch(memory_bytes: int) -> int:
    """Return the largest power of two whose reference takes four fifths of the memory at most."""
    fits = memory_bytes * 4 // (5 * REFERENCE_BYTES)
    return max(SMALLEST_BATCH, min(LARGEST_BATCH, 1 << max(fits.bit_length() - 1, 0)))
