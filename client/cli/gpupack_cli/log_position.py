# SPDX-License-Identifier: Apache-2.0
"""The position in a log, from which reading continues after a lost connection.

The kubelet can start a log at a second, and each line has a time with nanoseconds. Lines of the
last seconds are remembered, since two streams of one container may be slightly out of order: these
lines come again and are skipped.

  … 05:24:11.7 ok │ connection lost, read again from 05:24:09 on │ 05:24:10.2, 05:24:11.7 known
"""

import datetime as dt
import hashlib
from typing import Final

OVERLAP: Final = dt.timedelta(seconds=2)
MAX_REMEMBERED: Final = 1 << 16


class LogPosition:
    """The position in one container's log."""

    def __init__(self) -> None:
        self._last: dt.datetime | None = None
        self._known: dict[bytes, dt.datetime] = {}
        """Time of a line by its digest: lines may have megabytes."""
        self._repeated: set[bytes] = set()

    @property
    def query(self) -> dict[str, str]:
        """The query for the kubelet, to continue from here."""
        if self._last is None:
            return {}
        start = (self._last - OVERLAP).astimezone(dt.UTC).replace(microsecond=0)
        return {"sinceTime": start.isoformat().replace("+00:00", "Z")}

    def resume(self) -> None:
        """Prepare for a new stream: the remembered lines come again."""
        self._repeated = set(self._known)

    def new_text(self, line: bytes) -> bytes | None:
        """Return the line without its time; None: it was shown before."""
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
    """Parse the form 2026-11-21T05:24:11.123456789Z, cut to microseconds."""
    try:
        whole, _, rest = text.decode("ascii").rstrip("Z").partition(".")
        digits = rest[:6].ljust(6, "0") if rest else "0"
        return dt.datetime.fromisoformat(f"{whole}.{digits:0<6}+00:00")
    except (ValueError, UnicodeDecodeError):
        return None
