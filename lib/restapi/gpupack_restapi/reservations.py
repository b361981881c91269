# SPDX-License-Identifier: Apache-2.0
"""Time-window reservations with their current or next window."""

import msgspec


class ReservationView(msgspec.Struct, frozen=True):
    """A namespace's reservation, from its GPUReservation's spec and status.

    `window_start` and `window_end` are empty where no window follows. `problem`: why it does not
    stand, or why GPUs of the window are not there; empty: neither is so.
    """

    namespace: str
    name: str
    model: str
    gpus: str
    phase: str
    window_start: str
    window_end: str
    used: str
    held: str
    missing: str
    recurrence: str
    problem: str


class Reservations(msgspec.Struct, frozen=True):
    """Reservations by namespace and name.

    `may_list` is false for a caller that may list GPUReservations in no namespace that has one, nor
    in its own. `next` is empty where there are no more.
    """

    reservations: tuple[ReservationView, ...]
    may_list: bool = True
    total: int = 0
    next: str = ""
