# SPDX-License-Identifier: Apache-2.0
"""How far a log was read, so that it goes on where a connection was lost.

The kubelet starts a log from a second on, and each of its lines has a time with nanoseconds. What
was read of the last seconds is remembered, since two streams of one container may be out of order
by a little: those lines come once more and are passed over.

    … 05:24:11.7 ok │ connection lost, asked anew from 05:24:09 on │ 05:24:10.2, 05:24:11.7 known
"""

import datetime as dt
import hashlib
from typing import Final

OVERLAP: Final = dt.timedelta(seconds=2)
MAX_REMEMBERED: Final = 1 << 16


class LogPosition:
    """Of one container's log."""

    def __init__(self) -> None:
        self._last: dt.datetime | None = None
        self._known: dict[bytes, dt.datetime] = {}
        """When a line was written, by its digest: lines may be of megabytes."""
        self._repeated: set[bytes] = set()

    @property
    def query(self) -> dict[str, str]:
        """What is asked of the kubelet, to go on from here."""
        if self._last is None:
            return {}
        start = (self._last - OVERLAP).astimezone(dt.UTC).replace(microsecond=0)
        return {"sinceTime": start.isoformat().replace("+00:00", "Z")}

    def resume(self) -> None:
        """The log is asked for anew: what is remembered comes once more."""
        self._repeated = set(self._known)

    def fresh(self, line: bytes) -> bytes | None:
        """The line without its time; None: it was shown before."""
        digest = hashlib.blake2b(line, digest_size=16).digest()
        if digest in self._repeated:
            self._repeated.discard(digest)
            return None
        moment, _, text = line.partition(b" ")
        at = _time(moment)
        if at is None:
            return line
        self._remember(digest, at)
        return text

    def _remember(self, digest: bytes, at: dt.datetime) -> None:
        self._known[digest] = at
        self._last = at if self._last is None else max(self._last, at)
        oldest = self._last - 2 * OVERLAP
        while len(self._known) > 1:
            first = next(iter(self._known))
            if self._known[first] >= oldest and len(self._known) <= MAX_REMEMBERED:
                return
            del self._known[first]


def _time(text: bytes) -> dt.datetime | None:
    """Of the form 2026-11-21T05:24:11.123456789Z, cut to microseconds."""
    try:
        whole, _, rest = text.decode("ascii").rstrip("Z").partition(".")
        digits = rest[:6].ljust(6, "0") if rest else "0"
        return dt.datetime.fromisoformat(f"{whole}.{digits:0<6}+00:00")
    except (ValueError, UnicodeDecodeError):
        return None
