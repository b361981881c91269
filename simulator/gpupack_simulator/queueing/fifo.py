# SPDX-License-Identifier: Apache-2.0
"""Discipline `fifo`: strictly in the order of arrival; who does not fit holds up all behind.

A job that was killed by a failure keeps the place that its arrival gave it. A job that fits not
even the empty cluster is refused on arrival, or it would hold up the queue for ever.
"""

from gpupack_simulator.queueing.discipline import Desk, Discipline, start_if_it_fits


class Fifo(Discipline):
    """Head of line."""

    name = "fifo"

    def serve(self, desk: Desk) -> None:
        """Start the first as long as it fits."""
        while (head := desk.waiting.head()) is not None and start_if_it_fits(desk, head):
            pass
