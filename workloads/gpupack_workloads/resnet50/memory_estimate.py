# SPDX-License-Identifier: Apache-2.0
"""Estimates the minimum memory of a training before any work."""

from gpupack_workloads.resnet50.model import EXPANSION, PARAMETERS, STAGES, STEM_CHANNELS
from gpupack_workloads.resnet50.plan import Plan

FLOAT_BYTES = 4
# Parameters, their gradients and momentum.
COPIES = 3


def least_bytes(plan: Plan) -> int:
    """Return what the 32-bit reference keeps from its forward for its backward pass, at least.

    Of each convolution its output, for the normalisation, and after ReLU the next one's input.
    Gradients of activations and the convolutions' own work space come on top.
    """
    kept = 2 * plan.batch_size * outputs_per_image(plan.size)
    return FLOAT_BYTES * (kept + COPIES * PARAMETERS)


def outputs_per_image(size: int) -> int:
    """Return how many values the convolutions on the main path make of one image."""
    edge = strided(size, 2)
    values = STEM_CHANNELS * edge**2
    edge = strided(edge, 2)
    for inner, blocks, stride in STAGES:
        for block in range(blocks):
            before, edge = edge, strided(edge, stride if block == 0 else 1)
            values += inner * (before**2 + edge**2) + inner * EXPANSION * edge**2
    return values


def strided(edge: int, stride: int) -> int:
    """Return an edge after a window with a border that steps by a stride."""
    return -(-edge // stride)
