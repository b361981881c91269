# SPDX-License-Identifier: Apache-2.0
"""Limits for an image that cannot be pulled: how long attempts hold GPUs, and how many there are.

    attempt        1      2     3     ...   8
    GPUs held      120 s  30 s  30 s        30 s, then the job fails
    pause before          15 s  30 s        10 min, in which no GPU is held

An invalid image name fails the job at once. So does a missing image where the pull policy forbids
to pull it, unless an attempt has run before: that may depend on the node.
"""

import itertools
from collections.abc import Sequence
from typing import Final

from gpupack_crds.gpujob_status import Attempt
from gpupack_operator.decision.reasons import JobReason

MAX_ATTEMPTS: Final = 8
"""Largest number of consecutive attempts. With the pauses between them they take half an hour."""

LATER_SECONDS: Final = 30.0
"""Time for which later attempts hold their GPUs: two tries of the kubelet."""

INVALID_NAME: Final = "InvalidImageName"
NEVER_PULLED: Final = "ErrImageNeverPull"
TROUBLE: Final = frozenset({"ImagePullBackOff", "ErrImagePull", INVALID_NAME, NEVER_PULLED})
"""Reasons of the kubelet for a container whose image it cannot pull."""


def consecutive_failures(ended: Sequence[Attempt]) -> int:
    """Count the last attempts that could not pull an image."""
    newest_first = reversed(ended)
    could_not = itertools.takewhile(
        lambda each: each.reason == JobReason.IMAGE_PULL_FAILED, newest_first
    )
    return sum(1 for _ in could_not)


def wait_seconds(ended: Sequence[Attempt], first: float) -> float:
    """Return how long the attempt after these waits; `first`: how long the first one waits."""
    return min(first, LATER_SECONDS) if consecutive_failures(ended) else first


def is_last_attempt(ended: Sequence[Attempt]) -> bool:
    """Tell whether the attempt after these is the last that may wait for an image."""
    return consecutive_failures(ended) + 1 >= MAX_ATTEMPTS


def is_permanent(reason: str, ended: Sequence[Attempt]) -> bool:
    """Tell whether waiting is futile, and another attempt as well."""
    return reason == INVALID_NAME or (
        reason == NEVER_PULLED and consecutive_failures(ended) == len(ended)
    )


def describe_hold(ended: Sequence[Attempt], until: str) -> str:
    """Describe how the attempt continues; `until`: a time."""
    number = consecutive_failures(ended) + 1
    text = f"; its GPUs are held until {until}, by attempt {number} of {MAX_ATTEMPTS} that may wait"
    follows = (
        "the job fails"
        if is_last_attempt(ended)
        else "they are released, and the job is retried later"
    )
    return f"{text} for the image; then {follows}"
