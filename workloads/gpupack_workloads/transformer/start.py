# SPDX-License-Identifier: Apache-2.0
"""Starts this worker's processes; a signal to end reaches them, and they save before they leave."""

import tempfile
from dataclasses import replace
from pathlib import Path

from gpupack_workloads.distributed.launch import launch
from gpupack_workloads.errors import Cancelled, Interrupted, Terminated, WorkloadError
from gpupack_workloads.results import Result
from gpupack_workloads.settings import Gang
from gpupack_workloads.transformer.farewell import missing
from gpupack_workloads.transformer.options import TransformerOptions
from gpupack_workloads.transformer.rank import measure


def run(options: TransformerOptions, gang: Gang) -> Result:
    """Run this worker's processes; return what the first reports.

    Raises:
        Interrupted: a signal to end came, here or at another worker, and all have left in order.
        WorkloadError: as `launch` does, or processes were killed before they had saved.
    """
    with tempfile.TemporaryDirectory() as farewell:
        try:
            return launch(measure, replace(options, farewell=Path(farewell)), gang)
        except (Cancelled, Terminated) as told:
            raise ended(str(told), missing(Path(farewell))) from told


def ended(told: str, unsaved: list[str]) -> WorkloadError:
    """Return what being told to end has come to."""
    if unsaved:
        return WorkloadError(
            f"{told}; process(es) {', '.join(unsaved)} were gone before they had"
            " saved: the next attempt goes on from the checkpoint before"
        )
    return Interrupted(f"{told}; whatever is kept is saved")
