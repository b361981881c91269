# SPDX-License-Identifier: Apache-2.0
"""Runs a workload under Nsight Systems, where the image has it.

nsys and torch's profiler want the same interface of the driver, so it is one or the other.
"""

import csv
import io
import shutil
import subprocess
import sys
from collections.abc import Sequence

import msgspec

from gpupack_workloads.errors import BadArgument, WorkloadError, error_of_status
from gpupack_workloads.profile.digest import Digest, Total, is_communication
from gpupack_workloads.profile.outcome import with_profile
from gpupack_workloads.profile.settings import Recording
from gpupack_workloads.results import Result

SUMMARY = "cuda_gpu_kern_sum"
NANO_PER_MICRO = 1000


def find_nsys() -> str:
    """Return the path of nsys.

    Raises:
        BadArgument: it is not there.
    """
    found = shutil.which("nsys")
    if found is None:
        raise BadArgument(
            "--nsys: nsys is not on PATH; use an image with Nsight Systems, or leave --nsys out"
        )
    return found


def run(nsys: str, recording: Recording, arguments: Sequence[str]) -> Result:
    """Run a workload under nsys; return its result, with what its kernels took.

    Raises:
        WorkloadError: of the kind that the workload ended with.
    """
    report = recording.folder / f"{recording.workload}.nsys-rep"
    workload = [sys.executable, "-m", "gpupack_workloads", recording.workload, *arguments, "--json"]
    recorded = _run(
        [nsys, "profile", "--force-overwrite=true", f"--output={report}", *workload],
        what=f"{recording.workload} under nsys",
    )
    result = last_result(recorded)
    summary = _run(
        [nsys, "stats", f"--report={SUMMARY}", "--format=csv", "--output=-", str(report)],
        what="nsys stats",
    )
    return with_profile(result, kernels(summary), recording)


def last_result(output: str) -> Result:
    """Return the result that a workload printed, among what nsys says of itself."""
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            return msgspec.json.decode(line, type=Result)
    raise WorkloadError("the workload printed no result under nsys")


def kernels(summary: str) -> Digest:
    """Read the table of kernels, which nsys writes after a few lines about itself."""
    lines = summary.splitlines()
    start = next((index for index, line in enumerate(lines) if "Total Time (ns)" in line), None)
    table = csv.DictReader(io.StringIO("" if start is None else "\n".join(lines[start:])))
    tops = tuple(
        Total(row["Name"], int(row["Instances"]), float(row["Total Time (ns)"]) / NANO_PER_MICRO)
        for row in table
        if row.get("Name")
    )
    total = sum(top.total_us for top in tops)
    communication = sum(top.total_us for top in tops if is_communication(top.name))
    # A summary has no overlaps: sums are used for all three.
    return Digest(
        of_gpu=bool(tops),
        span_us=total,
        busy_us=total,
        communication_us=communication,
        exposed_us=communication,
        tops=tops,
    )


def _run(command: list[str], *, what: str) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603  a list, no shell
    if done.returncode != 0:
        raise error_of_status(done.returncode, f"{what} ended with {done.returncode}")
    return done.stdout
