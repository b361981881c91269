# SPDX-License-Identifier: Apache-2.0
"""Sizes of the training for a kind of device."""

from dataclasses import dataclass

from gpupack_workloads.devices import Device
from gpupack_workloads.errors import BadArgument
from gpupack_workloads.memory import free_bytes
from gpupack_workloads.resnet50.options import NO_COMPILER, ResNetOptions
from gpupack_workloads.training.precision import Precision

SIMULATED_BATCH = 4
SMALLEST_BATCH = 16
LARGEST_BATCH = 1024
# Measured, of an image of 224 x 224.
REFERENCE_SIZE = 224
REFERENCE_BYTES = 90 * 10**6
USUAL_IMAGES = 256


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

    @property
    def learning_rate(self) -> float:
        """0.1 per 256 images (Goyal et al., 2017), without its warm-up: half of it."""
        return 0.05 * max(self.batch_size / USUAL_IMAGES, 1.0)


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
    size = options.size or (32 if simulated else 224)
    batch_size = options.batch_size or usual_batch(device, size)
    return Plan(
        size=size,
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
    )


def usual_batch(device: Device, size: int) -> int:
    """Return the images per step that a device's free memory is good for.

    Larger is faster: 1024 by 2.5% over 512 on an H200, and gradients travel half as often. The
    plain reference in 32 bits, which is freed before anything is timed, decides what fits.
    """
    if device.simulated:
        return SIMULATED_BATCH
    return fitting_batch(free_bytes(device), size)


def fitting_batch(memory_bytes: int, size: int) -> int:
    """Return the largest power of two whose reference takes four fifths of the memory at most."""
    image_bytes = REFERENCE_BYTES * size**2 // REFERENCE_SIZE**2
    fits = memory_bytes * 4 // (5 * image_bytes)
    return max(SMALLEST_BATCH, min(LARGEST_BATCH, 1 << max(fits.bit_length() - 1, 0)))
