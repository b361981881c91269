# SPDX-License-Identifier: Apache-2.0
"""Errors of the simulator.

SimulatorError
├── InvalidJob          (also ValueError: a job that cannot exist)
├── InvalidParameter    (also ValueError: a load of 0, an unknown discipline)
├── InvalidDecision     a custom queue made a decision that cannot be executed
├── InvalidInput        a file with faults, each with its line and column
└── ProcessLost         a process that made runs was killed
"""

from collections.abc import Sequence
from dataclasses import dataclass

MAX_SHOWN_FAULTS = 20
"""Maximum number of faults that a message lists; the rest are counted."""


class SimulatorError(Exception):
    """Base of all errors of gpupack_simulator."""


class InvalidJob(SimulatorError, ValueError):
    """A job that cannot exist."""


class InvalidParameter(SimulatorError, ValueError):
    """A parameter of a run that makes no sense."""


class InvalidDecision(SimulatorError):
    """A decision of a custom queue that cannot be executed."""


class ProcessLost(SimulatorError):
    """A killed worker process; its remaining runs are lost."""

    def __init__(self, runs: int) -> None:
        super().__init__(
            f"a process that made some of the {runs} runs was killed, for want of memory perhaps; "
            "try fewer at the same time (-j 1)"
        )


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault in a file. `line` counts from 1; 0: the file as a whole.

    `column`: the name of the CSV's column or the path of the field (`jobs[2].gpus`).
    """

    line: int
    column: str
    message: str

    def text(self, file: str) -> str:
        """Return a text such as «pods.csv:17: cpu_milli: ...»."""
        where = f"{file}:{self.line}" if self.line else file
        return ": ".join(part for part in (where, self.column, self.message) if part)


class InvalidInput(SimulatorError):
    """All faults of one file; nothing of the file is used."""

    def __init__(self, file: str, faults: Sequence[Fault]) -> None:
        self.file, self.faults = file, tuple(faults)
        lines = [fault.text(file) for fault in self.faults[:MAX_SHOWN_FAULTS]]
        hidden = len(self.faults) - len(lines)
        if hidden:
            lines.append(f"… and {hidden} more faults in {file}")
        super().__init__("\n".join(lines))
