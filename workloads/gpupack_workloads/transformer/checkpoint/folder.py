# SPDX-License-Identifier: Apache-2.0
"""Places of checkpoints: FOLDER/attempt-N/step-M; FOLDER/latest names the newest complete one.

Each start of a training claims a new number and writes below that only, so one that was
taken for dead and still runs cannot spoil what its successor has. The job's count of attempts
would not do: a job that was created again counts from 1. `latest` is replaced in one move after a
checkpoint is complete: a reader finds the old one or the new one. A checkpoint is whole once it
says of which network it is, which is written last.
"""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from gpupack_workloads.errors import BadArgument, WorkloadError
from gpupack_workloads.folders import usable_folder

LATEST = "latest"
ABOUT = "network.json"
# Of numbers that a training reaches: what is longer is no checkpoint's name.
FORM = re.compile(r"attempt-(\d{1,9})/step-(\d{1,9})")
ATTEMPT = re.compile(r"attempt-(\d{1,9})")
# The newest, and the one before it, which a reader may have open.
KEPT = 2


@dataclass(frozen=True, order=True)
class Checkpoint:
    """Place of a checkpoint; `step`: number of steps done. Later attempts are newer."""

    attempt: int
    step: int

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
    try:
        usable_folder(folder)
    except BadArgument as error:
        raise BadArgument(f"cannot keep checkpoints in {folder}: {error}") from error


def claim(folder: Path, least: int) -> int:
    """Take a number above those of all earlier starts, and no smaller than one.

    To make a folder is one act, so no two starts get the same.

    Raises:
        BadArgument: the folder cannot be made.
    """
    number = max(least, newest_attempt(folder) + 1)
    while True:
        try:
            (folder / f"attempt-{number}").mkdir()
        except FileExistsError:
            number += 1
        except OSError as error:
            raise BadArgument(
                f"{folder}/attempt-{number} cannot be made: {error.strerror}"
            ) from error
        else:
            return number


def newest_attempt(folder: Path) -> int:
    """Return the highest number that a start has claimed; 0 where there was none."""
    pointed = Checkpoint.parse(pointed_at(folder))
    claimed = (ATTEMPT.fullmatch(path.name) for path in folder.glob("attempt-*"))
    numbers = [int(found[1]) for found in claimed if found]
    return max(numbers, default=0) if pointed is None else max(pointed.attempt, *numbers, 0)


def refuse_if_replaced(folder: Path, attempt: int) -> None:
    """Let only the newest start write.

    Raises:
        WorkloadError: a later one has taken over, and this one should not run any more.
    """
    newest = newest_attempt(folder)
    if newest > attempt:
        raise WorkloadError(
            f"attempt {newest} has taken over {folder} from attempt {attempt}: another job, or"
            " another start of this one, trains there"
        )


def latest(folder: Path) -> Checkpoint | None:
    """Return the newest whole checkpoint, or nothing where there is none.

    That is what the pointer names. Where it names nothing whole, the newest of those that are
    there: a lost pointer should not make a training start from the beginning.

    Raises:
        BadArgument: the pointer cannot be read, or it leads nowhere and there is nothing else.
    """
    name = pointed_at(folder)
    found = Checkpoint.parse(name)
    if found is not None and is_whole(folder, found):
        return found
    whole = [checkpoint for checkpoint in written(folder) if is_whole(folder, checkpoint)]
    if name and not whole:
        raise BadArgument(
            f"{folder / LATEST} names {name!r}, which is no checkpoint there, nor is another;"
            f" remove {folder / LATEST} to start from the beginning"
        )
    return max(whole, default=None)


def pointed_at(folder: Path) -> str:
    """Return what the pointer says, nothing where there is none."""
    try:
        return (folder / LATEST).read_text().strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise BadArgument(f"{folder / LATEST} cannot be read: {error}") from error


def written(folder: Path) -> list[Checkpoint]:
    """Return all that were begun, whole or not, the oldest first."""
    names = (f"{path.parent.name}/{path.name}" for path in folder.glob("attempt-*/step-*"))
    return sorted(found for found in map(Checkpoint.parse, names) if found is not None)


def is_whole(folder: Path, checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint was written to its end."""
    return (folder / checkpoint.name / ABOUT).is_file()


def point_at(folder: Path, checkpoint: Checkpoint) -> None:
    """Make a whole checkpoint the one to resume from.

    Raises:
        WorkloadError: a later attempt has taken over, and this one should not run any more.
    """
    refuse_if_replaced(folder, checkpoint.attempt)
    fresh = folder / f".{LATEST}.{checkpoint.attempt}.{os.getpid()}"
    with fresh.open("w") as file:
        file.write(f"{checkpoint.name}\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(folder / LATEST)


def forget_old(folder: Path, newest: Checkpoint) -> None:
    """Remove all but the newest few that lead up to one.

    What a later attempt wrote stays, and so does what the pointer names.
    """
    kept = {newest, Checkpoint.parse(pointed_at(folder))}
    older = [checkpoint for checkpoint in written(folder) if checkpoint < newest]
    for checkpoint in older[: max(0, len(older) - KEPT + 1)]:
        if checkpoint not in kept:
            shutil.rmtree(folder / checkpoint.name, ignore_errors=True)
