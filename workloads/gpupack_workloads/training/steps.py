# SPDX-License-Identifier: Apache-2.0
"""An optimiser's step, with gradient scaling if the format needs it, and accumulation."""

from collections.abc import Callable, Sequence

import torch

from gpupack_workloads.training.precision import Precision

Batch = tuple[torch.Tensor, torch.Tensor]
LossOf = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Trainer:
    """Takes steps on the parameters of one loss; `synchronise` is called before each update."""

    def __init__(
        self,
        loss_of: LossOf,
        optimizer: torch.optim.Optimizer,
        *,
        precision: Precision,
        device: torch.device,
        synchronise: Callable[[], None] = lambda: None,
    ) -> None:
        self._loss_of = loss_of
        self._optimizer = optimizer
        self._precision = precision
        self._device = device
        self._synchronise = synchronise
        self._scaler = torch.amp.GradScaler(device.type, enabled=precision.needs_scaling)

    @property
    def scale(self) -> float:
        """By how much losses are scaled up now; 1 where the format needs none."""
        return float(self._scaler.get_scale())

    def step(self, parts: Sequence[Batch]) -> torch.Tensor:
        """Update once with the mean gradient of equal parts of a batch; return the mean loss."""
        self._optimizer.zero_grad(set_to_none=True)
        loss = self.backward(parts)
        self._synchronise()
        self._scaler.step(self._optimizer)
        self._scaler.update()
        return loss

    def backward(self, parts: Sequence[Batch]) -> torch.Tensor:
        """Add the (scaled) gradient of the mean loss over all parts; return that loss."""
        total = torch.zeros((), device=self._device)
        for inputs, labels in parts:
            with self._precision.computing(self._device):
                loss = self._loss_of(inputs, labels) / len(parts)
            self._scaler.scale(loss).backward()
            total += loss.detach()
        return total
