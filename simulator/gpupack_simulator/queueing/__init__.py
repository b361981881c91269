# SPDX-License-Identifier: Apache-2.0
"""The table of queue disciplines: a new one is a file here and a line below."""

from gpupack_simulator.errors import InvalidParameter
from gpupack_simulator.queueing.backfill import Backfill
from gpupack_simulator.queueing.discipline import Discipline
from gpupack_simulator.queueing.drop import Drop
from gpupack_simulator.queueing.fifo import Fifo
from gpupack_simulator.queueing.fifo_skip import FifoSkip
from gpupack_simulator.queueing.priority import Priority

_ALL: tuple[type[Discipline], ...] = (Drop, Fifo, FifoSkip, Backfill, Priority)

DISCIPLINES: dict[str, type[Discipline]] = {discipline.name: discipline for discipline in _ALL}


def discipline_named(name: str) -> Discipline:
    """A new discipline, or an error that lists those that exist."""
    try:
        return DISCIPLINES[name]()
    except KeyError:
        known = ", ".join(sorted(DISCIPLINES))
        raise InvalidParameter(f"there is no discipline {name!r}; use one of: {known}") from None
