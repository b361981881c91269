# SPDX-License-Identifier: Apache-2.0
"""The optimisers of a training by epochs, and their default learning rates.

Rates are for `BASE_BATCH` images per step, of all processes together. Another batch scales them:
linearly for stochastic gradient descent (Goyal et al. 2017, arXiv:1706.02677), by the square root
where the step is divided by the gradient's size (Malladi et al. 2022, arXiv:2205.10287). The linear
rule holds for small rates only, and their warm-up is not made here: it ends at `LARGEST_SCALE`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

BASE_BATCH = 64
LARGEST_SCALE = 2.0
MOMENTUM = 0.9


@dataclass(frozen=True)
class Kind:
    """An optimiser.

    Attributes:
        make: torch's class.
        rate: the learning rate for `BASE_BATCH` images per step.
        adaptive: whether its step is divided by the gradient's size.
        settings: its arguments besides the rate; all others have torch's defaults.
    """

    make: Callable[..., torch.optim.Optimizer]
    rate: float
    adaptive: bool
    settings: dict[str, Any] = field(default_factory=dict)


KINDS = {
    "sgd": Kind(torch.optim.SGD, 0.02, adaptive=False),
    "momentum": Kind(torch.optim.SGD, 0.005, adaptive=False, settings={"momentum": MOMENTUM}),
    "nesterov": Kind(
        torch.optim.SGD, 0.005, adaptive=False, settings={"momentum": MOMENTUM, "nesterov": True}
    ),
    "rmsprop": Kind(torch.optim.RMSprop, 5e-4, adaptive=True),
    "adam": Kind(torch.optim.Adam, 1e-3, adaptive=True),
    "adamw": Kind(torch.optim.AdamW, 1e-3, adaptive=True),
}


def usual_rate(name: str, *, batch_size: int) -> float:
    """Return an optimiser's learning rate for so many images per step of all processes."""
    kind, scale = KINDS[name], batch_size / BASE_BATCH
    return kind.rate * (scale**0.5 if kind.adaptive else min(scale, LARGEST_SCALE))


def new_optimizer(
    name: str, parameters: Iterable[torch.nn.Parameter], *, learning_rate: float
) -> torch.optim.Optimizer:
    """Return an optimiser of these parameters."""
    kind = KINDS[name]
    return kind.make(parameters, lr=learning_rate, **kind.settings)
