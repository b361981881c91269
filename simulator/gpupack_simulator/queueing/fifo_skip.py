# SPDX-License-Identifier: Apache-2.0
"""Discipline `fifo-skip`: in the order of arrival, passing over who does not fit.

Nobody is held up by another's size, and nothing is kept for large jobs: on a full cluster they
wait as long as smaller ones keep coming.
"""

from gpupack_simulator.queueing.discipline import Desk, Discipline, start_if_it_fits


class FifoSkip(Discipline):
    """First that fits."""

    name = "fifo-skip"

    def serve(self, desk: Desk) -> None:
        """Try the head of each lane; a lane whose head fails has failed as a whole."""
        lanes = [lane for lane in desk.waiting.lanes() if desk.waiting.may_fit(lane)]
        while lanes:
            lane = min(lanes, key=lambda lane: lane.head.rank)
            if not start_if_it_fits(desk, lane.head) or not lane.entries:
                lanes.remove(lane)
