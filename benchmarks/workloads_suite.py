# SPDX-License-Identifier: Apache-2.0
"""Runs the built-in workloads at the sizes of docs/workloads on this host's GPUs.

    python3 benchmarks/workloads_suite.py                      # all
    python3 benchmarks/workloads_suite.py --only softmax,gemm  # some
    python3 benchmarks/workloads_suite.py --list

Each successful run writes docs/reports/workloads/NAME-GPUSxDEVICE.json: its result, arguments,
versions and driver. A run that fails or could not verify its result does not change the older file.

Runs are parallel as long as there are free GPUs; those of all GPUs run alone at the end.
Needs a Python with torch, Triton, NumPy, click and msgspec; no virtual environment, no network.
"""

import argparse
import contextlib
import importlib.metadata
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workloads_runs import RUNS, Run, file_name

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = [str(ROOT / folder) for folder in ("workloads/kernels", "workloads")]
sys.path[:0] = PACKAGES

from gpupack_workloads.settings import NO_MULTICAST  # noqa: E402  needs no torch

REPORTS = ROOT / "docs" / "reports" / "workloads"
POLL_SECONDS = 0.2
MPIRUN_SECONDS = 10.0
FIRST_PORT = 29500
"""Rendezvous port of the first gang; parallel gangs must have different ports."""


@dataclass
class Started:
    """A run in progress: its GPUs and its deadline (of the monotonic clock)."""

    run: Run
    gpus: tuple[str, ...]
    process: subprocess.Popen[bytes]
    since: float
    deadline: float


@dataclass(frozen=True)
class Ended:
    """A run that has ended; the status of a stopped run is that of its signal."""

    run: Run
    status: int
    seconds: float
    output: str


class Suite:
    """Runs on a set of GPUs.

    Args:
        gpus: the GPUs' names for CUDA_VISIBLE_DEVICES.
        out: folder for the reports.
        logs: folder for the output of runs.
        deadline: of the monotonic clock; no run continues after it.
    """

    def __init__(self, gpus: Sequence[str], *, out: Path, logs: Path, deadline: float) -> None:
        self._free = list(gpus)
        self._count = len(gpus)
        self._out = out
        self._logs = logs
        self._deadline = deadline
        self._running: list[Started] = []
        self._ports = itertools.count(FIRST_PORT)

    def go(self, runs: Sequence[Run]) -> Iterator[Ended]:
        """Run all that fit, and yield each as it ends."""
        # The longest first, so that no long run is alone at the end; those of all GPUs last.
        by_itself = {run for run in runs if run.alone or run.gpus >= self._count}
        waiting = sorted(runs, key=lambda run: (run in by_itself, -run.seconds))
        try:
            while waiting or self._running:
                waiting = self._start(waiting)
                yield from self._ended()
                time.sleep(POLL_SECONDS)
        finally:
            for started in self._running:
                stop(started)

    def _start(self, waiting: list[Run]) -> list[Run]:
        """Start runs for which there are GPUs; return the others."""
        if time.monotonic() >= self._deadline:
            for run in waiting:
                print(f"{run.name}: not started, no time is left", flush=True)
            return []
        left = []
        for run in waiting:
            if run.gpus > self._count:
                print(f"{run.name}: not started, it takes {run.gpus} GPUs", flush=True)
            elif self._has_room(run):
                self._begin(run)
            else:
                left.append(run)
        return left

    def _has_room(self, run: Run) -> bool:
        """Return whether a run can start next to those in progress."""
        if any(started.run.alone for started in self._running) or (run.alone and self._running):
            return False
        return run.gpus <= len(self._free)

    def _begin(self, run: Run) -> None:
        gpus = tuple(self._free.pop(0) for _ in range(run.gpus))
        environ = (
            os.environ
            | NO_MULTICAST
            | {
                "CUDA_VISIBLE_DEVICES": ",".join(gpus),
                "GPUPACK_JOB": f"{run.name}-{run.gpus}",
                "GPUPACK_RENDEZVOUS": f"127.0.0.1:{next(self._ports)}",
            }
        )
        environ["PYTHONPATH"] = os.pathsep.join(
            filter(None, (*PACKAGES, os.environ.get("PYTHONPATH")))
        )
        with self.stdout(run).open("wb") as output, self.stderr(run).open("wb") as errors:
            process = subprocess.Popen(  # noqa: S603  a list, no shell
                command(run), env=environ, stdout=output, stderr=errors, start_new_session=True
            )
        now = time.monotonic()
        print(f"{run.name}: started on GPU {','.join(gpus)}", flush=True)
        deadline = min(now + run.seconds, self._deadline)
        self._running.append(Started(run, gpus, process, now, deadline))

    def _ended(self) -> Iterator[Ended]:
        for started in list(self._running):
            if started.process.poll() is None and time.monotonic() < started.deadline:
                continue
            stop(started)
            self._running.remove(started)
            self._free.extend(started.gpus)
            yield Ended(
                started.run,
                started.process.wait(),
                time.monotonic() - started.since,
                self.stdout(started.run).read_text(),
            )

    def stdout(self, run: Run) -> Path:
        """Return where a run's result goes."""
        return self._logs / f"{run.name}-{run.gpus}.out"

    def stderr(self, run: Run) -> Path:
        """Return where a run's progress goes."""
        return self._logs / f"{run.name}-{run.gpus}.log"


def command(run: Run) -> list[str]:
    """Return the command line of a run."""
    module = [sys.executable, "-m", "gpupack_workloads", run.workload]
    # Open MPI refuses root by default; benchmarks run in containers, too.
    ranks = ["mpirun", "--allow-run-as-root", "-n", str(run.gpus)] if run.mpirun else []
    return [*ranks, *module, "--require-gpu", "--json", *run.arguments]


def stop(started: Started) -> None:
    """End a run with all its processes; a run that has ended stays as it is."""
    process = started.process
    if started.run.mpirun and process.poll() is None:
        # Its ranks are no part of its group: it ends them itself, if it is let.
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(MPIRUN_SECONDS)
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def report(ended: Ended, *, driver: str, versions: dict[str, str]) -> dict[str, Any]:
    """Return the report of a run.

    Triton's version comes from the run's result: a Triton on PYTHONPATH need not have the metadata
    of an installed package.
    """
    result = json.loads(ended.output.splitlines()[-1])
    triton_version = result.get("metrics", {}).get("triton_version")
    return {
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "name": ended.run.name,
        "workload": ended.run.workload,
        "arguments": list(ended.run.arguments),
        "gpus": ended.run.gpus,
        "driver": driver,
        "versions": versions | ({"triton": triton_version} if triton_version else {}),
        "seconds": round(ended.seconds, 1),
        "result": result,
    }


def keep(ended: Ended, *, out: Path, driver: str, versions: dict[str, str]) -> bool:
    """Write the report of a run that succeeded and verified its result; print its outcome."""
    what = f"{ended.run.name} ({ended.run.gpus} GPU): {ended.seconds:.0f} s"
    if ended.status != 0:
        print(f"{what}, FAILED with {ended.status}", flush=True)
        return False
    kept = report(ended, driver=driver, versions=versions)
    if not kept["result"]["verified"]:
        print(f"{what}, NOT VERIFIED: {kept['result']['headline']}", flush=True)
        return False
    path = out / file_name(kept)
    out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept, indent=1) + "\n")
    print(f"{what}, {kept['result']['headline']} -> {path}", flush=True)
    return True


def visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name]
    return [str(index) for index in range(len(ask_driver("index")))]


def ask_driver(field: str) -> list[str]:
    """Return one field of every GPU; none without a driver."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    done = subprocess.run(  # noqa: S603  a list, no shell
        [tool, f"--query-gpu={field}", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.splitlines() if done.returncode == 0 else []


def versions() -> dict[str, str]:
    """Return the versions of the libraries that compute."""
    found = {"python": sys.version.split()[0]}
    for package in ("torch", "triton", "nvidia-cudnn-cu13", "nvidia-nccl-cu13", "nvidia-cublas"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def chosen(only: str, skip: str, gpus: int, exactly: int | None = None) -> list[Run]:
    """Return the runs of these names (all where none is named) that these GPUs can serve.

    Args:
        only: names, separated by commas.
        skip: names to leave out.
        gpus: number of available GPUs.
        exactly: leave out runs with another number of GPUs.

    Raises:
        SystemExit: there is no run of a name.
    """
    names = {run.name for run in RUNS}
    wanted, unwanted = ({name for name in text.split(",") if name} for text in (only, skip))
    if unknown := (wanted | unwanted) - names:
        sys.exit(f"no such run: {', '.join(sorted(unknown))}; there are {', '.join(sorted(names))}")
    picked = (wanted or names) - unwanted
    return [
        run
        for run in RUNS
        if run.name in picked and run.gpus <= gpus and exactly in (None, run.gpus)
    ]


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="", help="names, separated by commas")
    parser.add_argument("--skip", default="", help="names, separated by commas")
    parser.add_argument("--gpus", type=int, help="only runs with this number of GPUs")
    parser.add_argument("--out", type=Path, default=REPORTS, help="folder for the reports")
    parser.add_argument("--logs", type=Path, default=Path("/tmp/gpupack-suite"))  # noqa: S108  logs only
    parser.add_argument("--seconds", type=float, default=3600, help="for everything")
    parser.add_argument("--list", action="store_true", help="print the runs without starting them")
    return parser.parse_args()


def main() -> int:
    """Run the requested runs; return 0 if all succeeded."""
    options = arguments()
    gpus = visible_gpus()
    runs = chosen(options.only, options.skip, 8 if options.list else len(gpus), options.gpus)
    if options.list:
        for run in runs:
            words = ("mpirun",) * run.mpirun + (run.workload, *run.arguments)
            print(f"{run.name:17} {run.gpus} GPU {run.seconds:4} s  {' '.join(words)}")
        return 0
    if not runs:
        sys.exit(f"nothing to run on {len(gpus)} GPUs")
    options.logs.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + options.seconds
    suite = Suite(gpus, out=options.out, logs=options.logs, deadline=deadline)
    driver = next(iter(ask_driver("driver_version")), "")
    succeeded = 0
    for ended in suite.go(runs):
        if keep(ended, out=options.out, driver=driver, versions=versions()):
            succeeded += 1
        else:
            print("  " + "\n  ".join(suite.stderr(ended.run).read_text().splitlines()[-15:]))
    print(f"{succeeded} of {len(runs)} runs succeeded", flush=True)
    return 0 if succeeded == len(runs) else 1


if __name__ == "__main__":
    sys.exit(main())
