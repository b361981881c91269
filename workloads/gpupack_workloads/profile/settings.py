# SPDX-License-Identifier: Apache-2.0
"""The folder of a profile; processes of a gang get it by their environment."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = "GPUPACK_PROFILE_FOLDER"
WORKLOAD = "GPUPACK_PROFILE_WORKLOAD"
TOP = "GPUPACK_PROFILE_TOP"


@dataclass(frozen=True)
class Recording:
    """Settings of a recording.

    Attributes:
        workload: its name.
        folder: for the trace and the table.
        top: how many kernels the result names.
    """

    workload: str
    folder: Path
    top: int

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "Recording | None":
        """Read what `to_environ` wrote; None where nothing is to be recorded."""
        if not environ.get(FOLDER):
            return None
        return cls(environ[WORKLOAD], Path(environ[FOLDER]), int(environ[TOP]))

    def to_environ(self) -> dict[str, str]:
        """Return variables for processes that are started from here."""
        return {FOLDER: str(self.folder), WORKLOAD: self.workload, TOP: str(self.top)}
