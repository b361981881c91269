# SPDX-License-Identifier: Apache-2.0
"""The life of an operation: one state machine for everything that outlives a cycle.

               Shown             VictimsEnd
    Decided ──────────► Written ────────────► Terminating
       │                   │                       │
       │ Expired           └─────────┬─────────────┘
       │ Withdrawn                   │
       ▼             Withdrawn       │      Started
    GivenUp ◄────────────────────────┴─────────────────► Placed ◄── from Decided, too

Only the API remembers an operation: a process that starts finds it in phase Written, with the time
of the decision. What is only decided is lost with the process, and no victim has ended for it.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Phase(StrEnum):
    """Where an operation is in its life."""

    DECIDED = "Decided"
    """Its places are reserved. The API does not show it, and no victim may end for it."""
    WRITTEN = "Written"
    """The API shows it. Its victims are to end."""
    TERMINATING = "Terminating"
    """All its victims are ending or have ended; no more is to be ordered."""
    PLACED = "Placed"
    """The job has its places. The operation is over."""
    GIVEN_UP = "GivenUp"
    """The places are released, and the job waits or is gone. The operation is over."""

    @property
    def is_over(self) -> bool:
        """Tell whether no event can follow."""
        return self in {Phase.PLACED, Phase.GIVEN_UP}


class Event(StrEnum):
    """What happens to an operation."""

    SHOWN = "Shown"
    """The watch shows it as written."""
    VICTIMS_END = "VictimsEnd"
    """Each victim is ending or has ended."""
    STARTED = "Started"
    """The job has its places; other ones also count."""
    EXPIRED = "Expired"
    """The API should show it by now and does not."""
    WITHDRAWN = "Withdrawn"
    """The queue, an edit or the end of the job has made it pointless."""


class ImpossibleEvent(Exception):
    """An event that cannot happen in this phase: an error in this program."""

    def __init__(self, phase: Phase, event: Event) -> None:
        super().__init__(f"{event} cannot happen to an operation that is {phase}")


NEXT: Final[Mapping[tuple[Phase, Event], Phase]] = {
    (Phase.DECIDED, Event.SHOWN): Phase.WRITTEN,
    (Phase.DECIDED, Event.EXPIRED): Phase.GIVEN_UP,
    (Phase.DECIDED, Event.WITHDRAWN): Phase.GIVEN_UP,
    (Phase.DECIDED, Event.STARTED): Phase.PLACED,
    (Phase.WRITTEN, Event.SHOWN): Phase.WRITTEN,
    (Phase.WRITTEN, Event.VICTIMS_END): Phase.TERMINATING,
    (Phase.WRITTEN, Event.WITHDRAWN): Phase.GIVEN_UP,
    (Phase.WRITTEN, Event.STARTED): Phase.PLACED,
    (Phase.TERMINATING, Event.SHOWN): Phase.TERMINATING,
    (Phase.TERMINATING, Event.VICTIMS_END): Phase.TERMINATING,
    (Phase.TERMINATING, Event.WITHDRAWN): Phase.GIVEN_UP,
    (Phase.TERMINATING, Event.STARTED): Phase.PLACED,
}
"""The phase after an event; a pair that is absent is impossible. Victims end for nothing that is
not written, and what is written never expires."""


def next_phase(phase: Phase, event: Event) -> Phase:
    """Return the phase after an event.

    Raises:
        ImpossibleEvent: the event cannot happen in this phase.
    """
    try:
        return NEXT[phase, event]
    except KeyError:
        raise ImpossibleEvent(phase, event) from None
