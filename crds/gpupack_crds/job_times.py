# SPDX-License-Identifier: Apache-2.0
"""Times of a GPUJob that operator and scheduler must count alike."""

import datetime as dt
from collections.abc import Iterable


def seconds_left(limit: float | None, used: float) -> float | None:
    """What is left of activeDeadlineSeconds for the next attempt, or for the one that runs.

    None: there is no deadline. Zero or less: it was used up.
    """
    return None if limit is None else limit - used


def waits_since(moments: Iterable[dt.datetime | None]) -> dt.datetime | None:
    """Since when an attempt waits: its job was made, was resumed, or its last attempt ended."""
    return max((moment for moment in moments if moment is not None), default=None)
