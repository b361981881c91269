# SPDX-License-Identifier: Apache-2.0
"""Gradients in long buffers, so that few exchanges make them the mean of all ranks'."""

from collections.abc import Iterable

import torch
from torch import nn

from gpupack_workloads.resnet50.coupling.exchange import Buffer, Exchange
from gpupack_workloads.training.memory import MIB


class Buckets:
    """Long buffers for the gradients of a network's segments.

    Every backward pass must reach all parameters, and be followed by `synchronise`.

    Args:
        segments: modules in the order of the forward pass; no buffer spans two of them.
        exchange: makes the buffers.
        bucket_mib: a segment with more gradients than this gets several buffers.
    """

    def __init__(
        self, segments: Iterable[nn.Module], exchange: Exchange, *, bucket_mib: int
    ) -> None:
        groups = [
            group
            for segment in segments
            for group in cut(list(segment.parameters()), bucket_mib * MIB)
        ]
        self._buckets = [
            Bucket(group, exchange.buffer(sum(parameter.numel() for parameter in group)))
            for group in groups
        ]

    def synchronise(self) -> None:
        """Replace gradients by the mean of all ranks'.

        Raises:
            RuntimeError: the backward pass did not reach all parameters.
        """
        for bucket in self._buckets:
            bucket.begin()
        for bucket in self._buckets:
            bucket.end()

    def close(self) -> None:
        """Leave the gradients of later backward passes alone."""
        for bucket in self._buckets:
            bucket.close()


class Bucket:
    """One buffer, and each parameter's part of it."""

    def __init__(self, parameters: list[nn.Parameter], buffer: Buffer) -> None:
        self._parameters, self._buffer = parameters, buffer
        sizes = [parameter.numel() for parameter in parameters]
        # In the parameters' own memory order, so that copies and updates stay straight.
        self._parts = [
            part.as_strided(parameter.shape, parameter.stride())
            for part, parameter in zip(buffer.flat.split(sizes), parameters, strict=True)
        ]
        self._missing, self._begun = len(parameters), False
        early = parameters if buffer.early else []
        self._hooks = [p.register_post_accumulate_grad_hook(self._arrived) for p in early]

    def _arrived(self, _: torch.Tensor) -> None:
        """Count a gradient; the last one starts the exchange."""
        self._missing -= 1
        if self._missing == 0:
            self.begin()

    def begin(self) -> None:
        """Gather the gradients and start, unless that has happened."""
        if not self._begun:
            self._fill()
            self._buffer.begin()
            self._begun = True

    def _fill(self) -> None:
        """Gather the gradients, and let the optimiser find them here."""
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        if len(gradients) < len(self._parameters):
            missing = len(self._parameters) - len(gradients)
            raise RuntimeError(f"{missing} parameters have no gradient to exchange")
        torch._foreach_copy_(self._parts, gradients)
        for parameter, part in zip(self._parameters, self._parts, strict=True):
            parameter.grad = part

    def end(self) -> None:
        """Wait for the mean, and for the next backward pass."""
        self._buffer.end()
        self._missing, self._begun = len(self._parameters), False

    def close(self) -> None:
        """Forget the parameters."""
        for hook in self._hooks:
            hook.remove()


def cut(parameters: list[nn.Parameter], size_bytes: int) -> list[list[nn.Parameter]]:
    """Return parameters in groups of at least so many bytes, the last ones first."""
    groups: list[list[nn.Parameter]] = []
    held = size_bytes
    for parameter in reversed(parameters):
        if held >= size_bytes:
            groups.append([])
            held = 0
        groups[-1].append(parameter)
        held += parameter.numel() * parameter.element_size()
    return groups
