# SPDX-License-Identifier: Apache-2.0
"""Measures the latency of an inference server by the size of its share of a GPU.

    python3 benchmarks/inference_shares.py           # shares of 10, 30, 50 and 100 percent
    python3 benchmarks/inference_shares.py --table   # only the table, from the reports

Runs `inference-load` once for each share, one after the other on one GPU, each as a limited share's
container would: under an MPS daemon of this script's own, with the variables that the agent sets.
The same requests come at the same times in each. Without neighbours a share has the GPU's whole
memory bandwidth and power, so this is the cost of the limit alone; neighbours cost more.

Writes docs/reports/inference-shares-DEVICE.json and the table in docs/workloads/inference.md.
The GPU's settings do not change: the compute mode stays, and the daemon ends with the script. Needs
a Python with torch, Triton, NumPy, click, msgspec, PyYAML, aiohttp, starlette, uvicorn and
prometheus-client, and the driver's nvidia-cuda-mps-control.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import documents
import yaml
from workloads_runs import device_name
from workloads_suite import PACKAGES, ask_driver, versions

ROOT = Path(__file__).resolve().parents[1]
VALUES = ROOT / "charts" / "gpupack" / "values.yaml"
sys.path.insert(0, str(ROOT / "agent"))

from gpupack_agent.mps.threads import parse_thread_percentages  # noqa: E402  needs no cluster

REPORTS = ROOT / "docs" / "reports"
DOCUMENT = ROOT / "docs" / "workloads" / "inference.md"
CONTROL = "nvidia-cuda-mps-control"
PROGRAM_FOLDERS = ("/usr/local/nvidia/bin", "/usr/bin")
PERCENTS = "10,30,50,100"
EVERY_PERCENT = range(1, 101)
DAEMON_SECONDS = 10
TABLE = "inference-shares"
COLUMNS = {
    "first token, ms": "ttft",
    "between tokens, ms": "itl",
    "whole answer, ms": "latency",
}

Report = dict[str, Any]


def thread_percent(percent: int, model: str) -> int:
    """Return the percentage of a GPU's threads that the chart's agent sets for a share."""
    sound = yaml.safe_load(VALUES.read_text())["shares"]["correctThreadPercentages"]
    return parse_thread_percentages(json.dumps(sound)).up_to(percent, model)


def environment(percent: int, threads: int, memory_mib: int, pipes: Path) -> dict[str, str]:
    """Return what the agent sets in the container of a limited share, in percent of a GPU."""
    return {
        "CUDA_MPS_PIPE_DIRECTORY": str(pipes),
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(threads),
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={memory_mib}M",
        "GPUPACK_DEVICE_PERCENT": str(percent),
        "GPUPACK_DEVICE_MEMORY_MIB": str(memory_mib),
        "GPUPACK_RESULT_PATH": os.devnull,
    }


def control_program() -> str:
    """Return the driver's program.

    Raises:
        SystemExit: this host has none.
    """
    path = os.pathsep.join([os.environ.get("PATH", ""), *PROGRAM_FOLDERS])
    if (found := shutil.which(CONTROL, path=path)) is None:
        sys.exit(f"{CONTROL} is not installed: shares of this host cannot be limited")
    return found


@contextlib.contextmanager
def daemon(control: str) -> Iterator[Path]:
    """Run an MPS daemon while the context lasts; yields the folder by which programs find it.

    Raises:
        SystemExit: it does not start.
    """
    with tempfile.TemporaryDirectory(prefix="mps-") as folder:
        pipes = Path(folder)
        environ = os.environ | {
            "CUDA_MPS_PIPE_DIRECTORY": folder,
            "CUDA_MPS_LOG_DIRECTORY": folder,
            # The daemon starts the server program in its own folder.
            "PATH": f"{Path(control).parent}:{os.environ.get('PATH', '')}",
        }
        log = pipes / "daemon.log"
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603  a list, no shell
                [control, "-f"],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            deadline = time.monotonic() + DAEMON_SECONDS
            while not (pipes / "control").exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"{control} did not start: {log.read_text(errors='replace')}")
                time.sleep(0.1)
            yield pipes
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run(  # noqa: S603  same
                    [control], env=environ, input=b"quit\n", check=False, timeout=DAEMON_SECONDS
                )
            process.terminate()
            process.wait(DAEMON_SECONDS)


def measure(
    options: argparse.Namespace, percent: int, pipes: Path, seconds: float
) -> Report | None:
    """Return the result of one share, or None where there is none."""
    command = [
        sys.executable, "-m", "gpupack_workloads", "inference-load", "--require-gpu", "--json",
        f"--rate={options.rate}", f"--seconds={options.seconds}", f"--seed={options.seed}",
    ]  # fmt: skip
    threads = thread_percent(percent, next(iter(ask_driver("name")), ""))
    environ = os.environ | environment(percent, threads, options.memory_mib, pipes)
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, (*PACKAGES, os.environ.get("PYTHONPATH"))))
    began = time.monotonic()
    with subprocess.Popen(  # noqa: S603  a list, no shell
        command, env=environ, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            printed, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            # Its load comes from a process of its own, which has the same output open.
            os.killpg(process.pid, signal.SIGKILL)
            print(f"{percent} %: stopped, no time is left", flush=True)
            return None
    if process.returncode != 0:
        print(f"{percent} %: FAILED with {process.returncode}", flush=True)
        return None
    result: Report = json.loads(printed.splitlines()[-1])
    print(f"{percent} %: {time.monotonic() - began:.0f} s, {result['headline']}", flush=True)
    return result


def table(reports: Sequence[Report]) -> str:
    """Return the table, a line for each share of each device."""
    head = (
        "device",
        "share",
        "multiprocessors",
        "tokens/s",
        *(f"{name}: p50 / p90 / p99" for name in COLUMNS),
    )
    lines = []
    for report in reports:
        for result in report["results"]:
            metrics = result["metrics"]
            waits = [
                " / ".join(f"{metrics[f'{name}_p{each}_ms']:,.1f}" for each in (50, 90, 99))
                for name in COLUMNS.values()
            ]
            lines.append(
                [
                    str(metrics["device"]),
                    f"{metrics['share_percent']} %",
                    str(metrics["multiprocessors"]),
                    f"{metrics['output_tokens_per_s']:,.0f}",
                    *waits,
                ]
            )
    return documents.table(head, lines)


def write_table(reports: Path, document: Path) -> None:
    """Put all reports of a folder into the document."""
    found = [
        json.loads(path.read_text()) for path in sorted(reports.glob("inference-shares-*.json"))
    ]
    document.write_text(documents.replaced(document.read_text(), TABLE, table(found)))


def percents_of(text: str) -> list[int]:
    """Read percentages in ascending order, each once.

    Raises:
        ArgumentTypeError: one is no whole number from 1 to 100.
    """
    found = text.split(",")
    if wrong := [each for each in found if not each.isdecimal() or int(each) not in EVERY_PERCENT]:
        raise argparse.ArgumentTypeError(f"{wrong[0]!r} is no percentage from 1 to 100")
    return sorted(set(map(int, found)))


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--percents", type=percents_of, default=PERCENTS, help="shares, separated by commas"
    )
    parser.add_argument("--memory-mib", type=int, default=16384, help="of each share")
    parser.add_argument("--rate", type=float, default=16, help="requests per second")
    parser.add_argument("--seconds", type=float, default=5, help="in which requests begin")
    parser.add_argument("--seed", type=int, default=0, help="of the load")
    parser.add_argument("--limit-seconds", type=float, default=180, help="for everything")
    parser.add_argument("--out", type=Path, default=REPORTS, help="folder for the report")
    parser.add_argument("--table", action="store_true", help="only write the table")
    return parser.parse_args()


def main() -> int:
    """Measure all shares; 0 if each has its verified result."""
    options = arguments()
    if options.table:
        write_table(REPORTS, DOCUMENT)
        return 0
    deadline = time.monotonic() + options.limit_seconds
    results = []
    with daemon(control_program()) as pipes:
        for percent in options.percents:
            left = deadline - time.monotonic()
            if left > 0 and (result := measure(options, percent, pipes, left)):
                results.append(result)
    verified = [each for each in results if each["verified"]]
    if verified:
        report = {
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
            "driver": next(iter(ask_driver("driver_version")), ""),
            "versions": versions(),
            "results": verified,
        }
        device = device_name(str(verified[0]["metrics"]["device"]))
        path = options.out / f"inference-shares-{device}.json"
        path.write_text(json.dumps(report, indent=1) + "\n")
        print(
            f"{len(verified)} of {len(options.percents)} shares -> {path}\n{table([report])}",
            flush=True,
        )
        if options.out == REPORTS:
            write_table(REPORTS, DOCUMENT)
    return 0 if len(verified) == len(options.percents) else 1


if __name__ == "__main__":
    sys.exit(main())
