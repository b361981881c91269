# SPDX-License-Identifier: Apache-2.0
"""What a new leader looks at before it decides.

A watch may be a minute and a half behind before it counts as stale. That harms nobody while one
process decides, since it knows its own writes; but a successor would give away what its
predecessor gave a minute ago. So whatever decisions rest on is listed once more.

To wait until each watch has reached the present resourceVersion was rejected: the watch of a
quiet kind gets there only with its next bookmark, up to a minute later.
"""

import math
from collections.abc import Callable, Iterable
from typing import Protocol


class Listed(Protocol):
    """What a takeover asks of a reflector."""

    listed_at: float

    def list_anew(self) -> None:
        """List again soon."""


class Takeover:
    """The lists that a new leader waits for. `clock` is the reflectors' own."""

    def __init__(self, sources: Iterable[Listed], *, clock: Callable[[], float]) -> None:
        self._sources = tuple(sources)
        self._clock = clock
        self._begun_at = -math.inf

    def begin(self) -> None:
        """Have everything listed from now on."""
        self._begun_at = self._clock()
        for source in self._sources:
            source.list_anew()

    @property
    def is_complete(self) -> bool:
        """Whether everything has been listed since."""
        return all(source.listed_at >= self._begun_at for source in self._sources)
