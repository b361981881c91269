# SPDX-License-Identifier: Apache-2.0
"""The intervals of a reservation: once, or by a rule of RFC 5545 in a time zone.

A repeated window keeps its length, and its time of day in its time zone across changes of daylight
saving time. What a hostile rule costs is bounded: at most one window begins on a day, none begins
after the horizon, and none more than a year after the first one.
"""

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dateutil.rrule import rrule, rrulestr

from gpupack_queue.errors import InvalidWindow

HORIZON: Final = dt.timedelta(days=62)
"""How far ahead windows count: those that begin later are not held for yet."""
MAX_SPAN: Final = dt.timedelta(days=366)
"""The maximum time from the first window to the last one."""
MAX_WINDOWS: Final = 64
"""The maximum number of windows of one reservation within the horizon."""
MAX_LENGTH: Final = dt.timedelta(days=14)
MAX_REPEATED_LENGTH: Final = dt.timedelta(hours=24)

Interval = tuple[float, float]
"""A start and an end, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a reservation has windows: `start` to `end`, and then by `rule` in `time_zone`.

    Raises:
        InvalidWindow: the times, the rule or the time zone make no sense.
    """

    start: dt.datetime
    end: dt.datetime
    rule: str = ""
    time_zone: str = "UTC"

    def __post_init__(self) -> None:
        length = self.end - self.start
        if length <= dt.timedelta():
            raise InvalidWindow(f"it ends at {self.end.isoformat()}, not after its start")
        most = MAX_REPEATED_LENGTH if self.rule else MAX_LENGTH
        if length > most:
            hours = most.total_seconds() / 3600
            raise InvalidWindow(f"its window is longer than {hours:g} hours; shorten it")
        if self.rule:
            _rule(self)

    def intervals(self, now: dt.datetime) -> tuple[Interval, ...]:
        """Return the windows that have not ended and begin within the horizon, in their order."""
        if not self.rule:
            found: Iterator[Interval] = iter([(self.start.timestamp(), self.end.timestamp())])
        else:
            found = self._repeated(now)
        until = (now + HORIZON).timestamp()
        kept = ((start, end) for start, end in found if end > now.timestamp() and start <= until)
        return tuple(islice(kept, MAX_WINDOWS))

    def _repeated(self, now: dt.datetime) -> Iterator[Interval]:
        length = self.end - self.start
        rule, count = _rule(self)
        for start in islice(rule, count):
            begins = start.astimezone(dt.UTC)
            if begins > now + HORIZON:
                return
            yield begins.timestamp(), (begins + length).timestamp()


@lru_cache(maxsize=256)
def _rule(schedule: Schedule) -> tuple[rrule, int | None]:
    """Return the rule with an end, and the number of its windows; None: all until the end.

    Without an end, a rule without windows would be searched for ever.

    Raises:
        InvalidWindow: the rule or the time zone cannot be read.
    """
    try:
        zone = ZoneInfo(schedule.time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidWindow(
            f"there is no time zone {schedule.time_zone}; write one such as Europe/Berlin"
        ) from None
    start = schedule.start.astimezone(zone)
    try:
        found: rrule = rrulestr(schedule.rule, dtstart=start)
        last, count = start + MAX_SPAN, found._count  # noqa: SLF001 - as `replace` does
        until = min(found._until or last, last)  # noqa: SLF001
        return found.replace(until=until, count=None), count
    except (ValueError, TypeError, OverflowError, AttributeError) as error:
        raise InvalidWindow(
            f"recurrence {schedule.rule!r} cannot be read ({error}); "
            "write one such as FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR"
        ) from None
