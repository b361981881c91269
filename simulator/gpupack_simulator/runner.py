# SPDX-License-Identifier: Apache-2.0
"""Every policy with every seed, in parallel processes, with a progress bar on stderr.

A process gets the experiment once, when it starts, and then names and seeds. It hands back the
digest of each run, not the run: a run of a hundred thousand jobs would take longer to hand over
than to make. Processes are spawned, not forked: safe beside threads. None outlives what started it,
however that ends.
"""

import os
import signal
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import product
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from gpupack_simulator.errors import ProcessLost
from gpupack_simulator.experiments import Experiment
from gpupack_simulator.output.digest import Digest
from gpupack_simulator.output.writing import digested

Case = tuple[str, int]


def run_all(
    experiment: Experiment,
    policies: Sequence[str],
    seeds: Sequence[int],
    *,
    processes: int = 1,
    folder: Path | None = None,
    quiet: bool = False,
) -> tuple[Digest, ...]:
    """By policy, then by seed, as given. A folder takes the files of single runs."""
    cases = list(product(policies, seeds))
    with _progress(len(cases), quiet=quiet) as advance:
        if processes == 1:
            return tuple(advance.done(case, _run(experiment, case, folder)) for case in cases)
        found = dict(_in_processes(experiment, cases, processes, folder, advance))
    return tuple(found[case] for case in cases)


class _Advance:
    """Moves the bar."""

    def __init__(self, progress: Progress, cases: int) -> None:
        self._progress = progress
        self._task = progress.add_task("runs", total=cases, last="")

    def done(self, case: Case, digest: Digest) -> Digest:
        policy, seed = case
        self._progress.update(self._task, advance=1, last=f"{policy}, seed {seed}")
        return digest


@contextmanager
def _progress(cases: int, *, quiet: bool) -> Iterator[_Advance]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[last]}"),
    )
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as progress:
        yield _Advance(progress, cases)


def _in_processes(
    experiment: Experiment,
    cases: Sequence[Case],
    processes: int,
    folder: Path | None,
    advance: _Advance,
) -> Iterator[tuple[Case, Digest]]:
    others = set(active_children())
    with ProcessPoolExecutor(
        min(processes, len(cases)), get_context("spawn"), _begin, (experiment, folder)
    ) as executor:
        try:
            futures = _submitted(executor, cases)
            for future in as_completed(futures):
                yield futures[future], advance.done(futures[future], future.result())
        except BaseException as error:
            executor.shutdown(wait=False, cancel_futures=True)
            _end(set(active_children()) - others)
            if isinstance(error, BrokenProcessPool):
                raise ProcessLost(len(cases)) from error
            raise


def _end(processes: Collection[BaseProcess]) -> None:
    """At once: a run of minutes is not waited for. A second Ctrl-C has to wait for it."""
    with _no_interrupts():
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()


def _submitted(executor: Executor, cases: Sequence[Case]) -> dict[Future[Digest], Case]:
    with _no_interrupts():
        return {executor.submit(_run_here, case): case for case in cases}


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Processes that are started here never see Ctrl-C, which a terminal sends to all of them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_mine: tuple[Experiment, Path | None] | None = None
"""In a worker process: what all its runs share."""


def _begin(experiment: Experiment, folder: Path | None) -> None:
    global _mine  # noqa: PLW0603  # the way in which a process of a pool is given anything once
    _mine = experiment, folder
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A process of a pool waits for work for ever when whoever gave it has been killed."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run_here(case: Case) -> Digest:
    if _mine is None:
        raise RuntimeError("the process was not begun")
    experiment, folder = _mine
    return _run(experiment, case, folder)


def _run(experiment: Experiment, case: Case, folder: Path | None) -> Digest:
    policy, seed = case
    return digested([experiment.run(policy, seed)], folder)[0]
