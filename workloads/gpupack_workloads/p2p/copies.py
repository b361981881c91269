# SPDX-License-Identifier: Apache-2.0
"""Times copies, and then checks the same copies."""

from collections.abc import Callable
from functools import partial

import torch

from gpupack_workloads.errors import WrongResult
from gpupack_workloads.p2p.pattern import count_wrong, write

# No byte of the pattern: what did not arrive cannot look right.
MISSING = 0xFF

# Copies words to a target from a source.
Copy = Callable[[torch.Tensor, torch.Tensor], object]
# Runs work several times; returns the seconds of one call.
Clock = Callable[[Callable[[], object]], float]


def checked_seconds(
    copy: Copy, target: torch.Tensor, source: torch.Tensor, *, seed: int, clock: Clock, doing: str
) -> float:
    """Return the time that the clock finds for a copy of the pattern.

    Raises:
        WrongResult: the target does not hold the pattern afterwards.
    """
    arrived = target.view(torch.uint8)
    write(source.view(torch.uint8), seed)
    arrived.fill_(MISSING)
    seconds = clock(partial(copy, target, source))
    if wrong := count_wrong(arrived, seed):
        raise WrongResult(f"{doing}: of {arrived.numel()} bytes {wrong} arrived wrongly")
    return seconds
