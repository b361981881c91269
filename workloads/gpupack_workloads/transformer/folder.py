# SPDX-License-Identifier: Apache-2.0
"""Where checkpoints lie: FOLDER/attempt-N/step-M; FOLDER/latest names the newest whole one.

An attempt writes below its own number only, so one that was taken for dead and still runs cannot
spoil what its successor has. `latest` is replaced in one move after a checkpoint is whole: who
reads it finds the old one or the new one.
"""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from gpupack_workloads.errors import BadArgument

LATEST = "latest"
FORM = re.compile(r"attempt-(\d+)/step-(\d+)")
# The newest, and one before it for whoever is reading it.
KEPT = 2


@dataclass(frozen=True, order=True)
class Checkpoint:
    """One checkpoint's place; `step` is how many steps were done."""

    step: int
    attempt: int

    @property
    def name(self) -> str:
        """Return its folder, relative to that of all checkpoints."""
        return f"attempt-{self.attempt}/step-{self.step}"

    @classmethod
    def parse(cls, name: str) -> "Checkpoint | None":
        """Return what a name means, if anything."""
        found = FORM.fullmatch(name)
        return cls(attempt=int(found[1]), step=int(found[2])) if found else None


def prepare(folder: Path) -> None:
    """Make the folder, if need be, and try to write there: after an hour's steps is too late.

    Raises:
        BadArgument: nothing can be written there.
    """
    probe = folder / f".probe.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        # Workers in pods of their own may have the same process number.
        probe.unlink(missing_ok=True)
    except OSError as error:
        raise BadArgument(f"cannot keep checkpoints in {folder}: {error}") from error


def latest(folder: Path) -> Checkpoint | None:
    """Return the newest whole checkpoint, or nothing where there is none.

    Raises:
        BadArgument: the pointer leads nowhere.
    """
    pointer = folder / LATEST
    try:
        name = pointer.read_text().strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadArgument(f"{pointer} cannot be read: {error}") from error
    found = Checkpoint.parse(name)
    if found is None or not (folder / name).is_dir():
        raise BadArgument(f"{pointer} names {name!r}, which is no checkpoint there")
    return found


def point_at(folder: Path, checkpoint: Checkpoint) -> None:
    """Make a whole checkpoint the one to resume from."""
    fresh = folder / f".{LATEST}.{os.getpid()}"
    with fresh.open("w") as file:
        file.write(f"{checkpoint.name}\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(folder / LATEST)


def forget_old(folder: Path, newest: Checkpoint) -> None:
    """Remove all but the newest few that lead up to one; what a later attempt wrote stays."""
    names = (f"{path.parent.name}/{path.name}" for path in folder.glob("attempt-*/step-*"))
    found = sorted(c for c in map(Checkpoint.parse, names) if c is not None)
    older = [c for c in found if c.attempt <= newest.attempt and c != newest]
    for checkpoint in older[: max(0, len(older) - KEPT + 1)]:
        shutil.rmtree(folder / checkpoint.name, ignore_errors=True)
