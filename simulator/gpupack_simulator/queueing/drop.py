# SPDX-License-Identifier: Apache-2.0
"""Discipline `drop`: nobody waits; a job that does not fit on arrival is refused.

The published experiment on the openb traces.
"""

from gpupack_simulator.queueing.discipline import Desk, Discipline, start_if_it_fits


class Drop(Discipline):
    """In the order of arrival."""

    name = "drop"
    keeps = False

    def serve(self, desk: Desk) -> None:
        """Start it or drop it."""
        for entry in desk.waiting:
            if not start_if_it_fits(desk, entry):
                desk.drop(entry)
