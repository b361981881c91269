# SPDX-License-Identifier: Apache-2.0
"""The mean of the negative logarithms of the right tokens' probabilities.

Shape legend: T tokens, V vocabulary.
"""

from collections.abc import Callable

import torch
from torch.nn import functional

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

# Below this a probability's logarithm would be infinite.
SMALLEST = 1e-37


def by_cross_entropy(logits_TV: torch.Tensor, targets_T: torch.Tensor) -> torch.Tensor:  # noqa: N803  shape suffixes
    """Return torch's own."""
    return functional.cross_entropy(logits_TV, targets_T)


def by_softmax(softmax: Callable[[torch.Tensor], torch.Tensor]) -> Loss:
    """Return the loss through a softmax itself rather than its logarithm.

    So that ours is part of training; the gradient is the same, softmax minus one at the target, by
    the chain rule.
    """

    def loss(logits_TV: torch.Tensor, targets_T: torch.Tensor) -> torch.Tensor:  # noqa: N803  shape suffixes
        right = softmax(logits_TV).gather(1, targets_T[:, None])
        return -right.clamp_min(SMALLEST).log().mean()

    return loss
