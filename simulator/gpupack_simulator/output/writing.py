# SPDX-License-Identifier: Apache-2.0
"""The folder with all output of runs.

    results.json, results.csv     all runs, one line a run in the CSV
    runs/POLICY/SEED.json         one run over time and by node
    runs/POLICY/SEED-jobs.csv     one line a job
    plots/NAME.png, NAME.svg
    report.html                   all of it for users, in one file

Runs are taken one at a time and only their digests kept, so that hundreds of large ones fit.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from gpupack_simulator.output.digest import Digest, digest
from gpupack_simulator.output.results import (
    csv_table,
    file_name,
    jobs_csv,
    results,
    run_json,
    write_json,
)
from gpupack_simulator.record import Run


def write(runs: Iterable[Run], folder: Path, *, command: str = "") -> tuple[Digest, ...]:
    """Write all output; `command`: the command in the report that repeats the runs."""
    digests = digested(runs, folder)
    write_results(digests, folder)
    write_report(digests, folder, command=command)
    return digests


def digested(runs: Iterable[Run], folder: Path | None = None) -> tuple[Digest, ...]:
    """Return the digests of runs; with a folder, write the files of single runs."""
    kept: list[Digest] = []
    for run in runs:
        first = all(one.policy != run.policy for one in kept)
        kept.append(digest(run, pictures=first))
        if folder is not None:
            _write_run(run, kept[-1], folder / "runs" / file_name(run.policy))
    return tuple(kept)


def write_results(digests: Sequence[Digest], folder: Path) -> None:
    """Write the figures of all runs."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "results.json", results(digests))
    (folder / "results.csv").write_text(csv_table(digests))


def write_report(digests: Sequence[Digest], folder: Path, *, command: str = "") -> Path:
    """Write the plots and the report."""
    # Loading the plotting libraries takes longer than most runs, so it is done only for plots.
    from gpupack_simulator.output.plots.catalogue import draw_plots  # noqa: PLC0415
    from gpupack_simulator.output.report import report  # noqa: PLC0415

    pictures = draw_plots(digests, folder / "plots")
    path = folder / "report.html"
    path.write_text(report(digests, pictures, command=command))
    return path


def _write_run(run: Run, digest: Digest, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / f"{run.seed}.json", run_json(run, digest))
    (folder / f"{run.seed}-jobs.csv").write_text(jobs_csv(run))
