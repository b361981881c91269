# SPDX-License-Identifier: Apache-2.0
"""Estimates the minimum memory of the training before any work.

The 32-bit techniques need most. Of each image the forward pass keeps for the backward pass: the
pixels; what each of a stage's two convolutions gives after rectification; and what pooling gives,
with the place of each maximum in 64 bits. Weights, gradients and cuDNN's work space come on top:
of the 2,359 MiB that an H200 took for batches of 1,024 images this finds 1,328.
"""

from gpupack_workloads.train_cnn.model import STAGES
from gpupack_workloads.train_cnn.options import CnnOptions
from gpupack_workloads.train_cnn.plan import EpochPlan, Plan

FLOAT_BYTES = 4
INDEX_BYTES = 8
# Made-up pixels on their way to bytes: in 64 bits, the same within 0 and 255, and 32 bits of noise.
MAKING_BYTES = 20


def training_bytes(options: CnnOptions, plan: Plan) -> int:
    """Return what a step takes in addition to the batches that stay on the device."""
    # How many images a folder holds is not known yet: one batch at least.
    images = plan.train if options.made_up else plan.batch_size
    return FLOAT_BYTES * images * pixels(options) + plan.batch_size * kept_bytes(options, plan)


def step_bytes(options: CnnOptions, plan: EpochPlan) -> int:
    """Return what a step of a training by epochs takes: its images come from the host."""
    return plan.batch_size * (FLOAT_BYTES * pixels(options) + kept_bytes(options, plan))


def making_bytes(options: CnnOptions, plan: Plan) -> int:
    """Return what the host takes to make images up; those of a folder are bytes already."""
    return MAKING_BYTES * plan.train * pixels(options) if options.made_up else 0


def pixels(options: CnnOptions) -> int:
    """Return how many numbers an image has."""
    return options.channels * options.edge**2


def kept_bytes(options: CnnOptions, plan: Plan | EpochPlan) -> int:
    """Return what a forward pass keeps of each image, its pixels aside."""
    total, edge = 0, options.edge
    for stage in range(STAGES):
        outer, pooled = plan.width << stage, edge // 2
        total += outer * (2 * FLOAT_BYTES * edge**2 + (FLOAT_BYTES + INDEX_BYTES) * pooled**2)
        edge = pooled
    return total
