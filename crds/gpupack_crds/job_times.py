# SPDX-License-Identifier: Apache-2.0
"""Times of a GPUJob that operator and scheduler must compute alike."""

import datetime as dt
from collections.abc import Iterable


def seconds_left(limit: float | None, used: float) -> float | None:
    """Return what is left of activeDeadlineSeconds for the next or the running attempt.

    None: there is no deadline. Zero or less: it is used up.
    """
    return None if limit is None else limit - used


def waits_since(moments: Iterable[dt.datetime | None]) -> dt.datetime | None:
    """Return since when an attempt waits: the job's creation, its resumption or its last end."""
    return max((moment for moment in moments if moment is not None), default=None)
