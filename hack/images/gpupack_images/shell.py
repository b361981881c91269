# SPDX-License-Identifier: Apache-2.0
"""A runner of programs: output goes to a log file, whose end is shown on failure."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpupack_images.errors import CommandFailed

TAIL_LINES = 25


@dataclass(frozen=True)
class Shell:
    """The folder, log and environment of programs."""

    folder: Path
    log: Path
    environ: Mapping[str, str]

    def run(self, *command: str) -> None:
        """Run a program to its end; raise `CommandFailed` with the end of its output."""
        with self.log.open("ab") as log:
            log.write(f"$ {' '.join(command)}\n".encode())
            log.flush()
            done = subprocess.run(
                command, cwd=self.folder, env=self.environ, stdout=log, stderr=log, check=False
            )
        if done.returncode != 0:
            raise CommandFailed(
                command=command, status=done.returncode, log=self.log, tail=self._tail()
            )

    def succeeds(self, *command: str, timeout_seconds: float = 60) -> bool:
        """Tell whether a program exists and succeeds in time."""
        try:
            self.read(*command, timeout_seconds=timeout_seconds)
        except (OSError, subprocess.TimeoutExpired, CommandFailed):
            return False
        return True

    def read(self, *command: str, timeout_seconds: float = 60) -> str:
        """Return what a short program prints."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_seconds,
        )
        if done.returncode != 0:
            raise CommandFailed(
                command=command, status=done.returncode, log=self.log, tail=done.stderr.strip()
            )
        return done.stdout.strip()

    def _tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-TAIL_LINES:])


def as_root(*command: str) -> Sequence[str]:
    """Put sudo before a command where the user is not root."""
    return command if os.geteuid() == 0 else ("sudo", *command)
