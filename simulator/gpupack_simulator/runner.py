# SPDX-License-Identifier: Apache-2.0
"""Runs of every policy with every seed, in parallel processes, with a progress bar on stderr.

A process gets the experiment once, when it starts, and then policies and seeds. It returns the
digest of each run, not the run: the transfer of a run of a hundred thousand jobs would take longer
than the run.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import product
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from gpupack_simulator.experiments import Experiment
from gpupack_simulator.output.digest import Digest
from gpupack_simulator.workers import Case, run_case, run_cases
from gpupack_terminal import console, screen


def run_all(
    experiment: Experiment,
    policies: Sequence[str],
    seeds: Sequence[int],
    *,
    processes: int = 1,
    folder: Path | None = None,
    quiet: bool = False,
) -> tuple[Digest, ...]:
    """Run all cases, by policy, then by seed, as given; a folder gets the files of single runs."""
    cases = list(product(policies, seeds))
    with _progress(len(cases), quiet=quiet) as advance:
        if processes == 1:
            return tuple(advance.done(case, run_case(experiment, case, folder)) for case in cases)
        with closing(run_cases(experiment, cases, folder, processes=processes)) as made:
            found = {case: advance.done(case, digest) for case, digest in made}
    return tuple(found[case] for case in cases)


class _ProgressBar:
    """The progress of the bar."""

    def __init__(self, progress: Progress, cases: int) -> None:
        self._progress = progress
        self._task = progress.add_task("runs", total=cases, last="")

    def done(self, case: Case, digest: Digest) -> Digest:
        policy, seed = case
        self._progress.update(self._task, advance=1, last=f"{policy}, seed {seed}")
        return digest


@contextmanager
def _progress(cases: int, *, quiet: bool) -> Iterator[_ProgressBar]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[last]}"),
    )
    # In a pipe or a log a moving bar is noise.
    off = quiet or not screen(sys.stderr).live
    with Progress(*columns, console=console(err=True), disable=off) as progress:
        yield _ProgressBar(progress, cases)
