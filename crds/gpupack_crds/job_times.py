# SPDX-License-Identifier: Apache-2.0
"""Times of a GPUJob that operator and scheduler must compute alike."""

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Final

from gpupack_crds import names

_MAX_TIME_CHARACTERS: Final = 40
"""RFC 3339 with nanoseconds and an offset has 35."""


def seconds_left(own: float | None, of_cohort: float | None, used: float) -> float | None:
    """Return what is left of the deadline for the next or the running attempt.

    `own`: activeDeadlineSeconds; `of_cohort`: the maximum run time of its cohort; the shorter one
    counts. None: there is no deadline. Zero or less: it is used up.
    """
    limit = min((each for each in (own, of_cohort) if each is not None), default=None)
    return None if limit is None else limit - used


def checkpointed_at(annotations: Mapping[str, str]) -> dt.datetime | None:
    """Return when the work was last saved, from the annotation; None: it is missing or no time.

    The chart's admission policy refuses a text that has not the form of a time. A day that does
    not exist, such as February 30, is ignored here.
    """
    text = annotations.get(names.CHECKPOINTED_AT_ANNOTATION, "")
    if len(text) > _MAX_TIME_CHARACTERS:
        return None
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else None


def waits_since(moments: Iterable[dt.datetime | None]) -> dt.datetime | None:
    """Return since when an attempt waits: the job's creation, its resumption or its last end."""
    return max((moment for moment in moments if moment is not None), default=None)
