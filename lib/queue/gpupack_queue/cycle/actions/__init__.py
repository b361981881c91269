# SPDX-License-Identifier: Apache-2.0
"""The actions of a cycle, in their order. A new action is a file and a line in ACTIONS."""

from typing import Final

from gpupack_queue.cycle.actions.action import Action
from gpupack_queue.cycle.actions.admit_in_order import AdmitInOrder
from gpupack_queue.cycle.actions.grow import Grow
from gpupack_queue.cycle.actions.move_off_devices import MoveOffDevices
from gpupack_queue.cycle.actions.serve_reservations import ServeReservations
from gpupack_queue.cycle.actions.serve_windows import ServeWindows

ACTIONS: Final[tuple[Action, ...]] = (
    ServeWindows(),
    ServeReservations(),
    MoveOffDevices(),
    AdmitInOrder(),
    Grow(),
)

__all__ = ["ACTIONS", "Action"]
