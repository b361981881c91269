# SPDX-License-Identifier: Apache-2.0
"""The course of losses next to the checkpoints: FOLDER/attempt-N/losses.jsonl, a line per step.

A start writes what it has computed just before the checkpoint that holds it counts, so the files of
all starts, a later one's steps before an earlier one's, are the course that led to the latest.
"""

import json
from collections.abc import Sequence
from pathlib import Path

FILE = "losses.jsonl"


def note(folder: Path, attempt: int, losses: Sequence[float], *, first: int, ranks: int) -> None:
    """Add the losses of these steps, the first of which is `first`, counted from 0."""
    lines = (
        json.dumps({"step": step, "loss": loss, "ranks": ranks}) + "\n"
        for step, loss in enumerate(losses, start=first)
    )
    with (folder / f"attempt-{attempt}" / FILE).open("a") as file:
        file.writelines(lines)
