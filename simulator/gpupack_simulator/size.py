# SPDX-License-Identifier: Apache-2.0
"""Jobs by size: waits and slowdown are told apart for these."""

from enum import StrEnum

from gpupack_core import WHOLE_GPU, Request


class Size(StrEnum):
    """By the GPUs of all workers together; a gang of two shares counts by what it adds up to."""

    NONE = "none"
    SHARE = "share"
    ONE = "one"
    FEW = "2-3"
    HALF = "4-7"
    NODE = "8"
    """8 GPUs and more."""


def size_of(request: Request, workers: int = 1) -> Size:
    """The class of a job of so many workers."""
    if not request.needs_gpu:
        return Size.NONE
    milli = request.milli * workers
    if milli < WHOLE_GPU:
        return Size.SHARE
    least = {Size.NODE: 8, Size.HALF: 4, Size.FEW: 2}
    return next((size for size, gpus in least.items() if milli >= gpus * WHOLE_GPU), Size.ONE)
