# SPDX-License-Identifier: Apache-2.0
"""Finds the percentages of a GPU's threads at which torch's products are right under CUDA MPS.

    python3 benchmarks/mps_products.py                  # every percentage
    python3 benchmarks/mps_products.py --percents 30,50

cuBLAS chooses its kernels by the multiprocessors that MPS leaves a process, and with most numbers
of an H100's it leaves parts of a product unwritten (docs/adr/0058). Each percentage is tried by a
process of its own under a daemon of this script's own, with the variables that the agent sets for a
limited share: products of twelve heights and nine weights, in bf16 and fp16, compared with the same
in 32 bits, written over NaNs. The correct percentages go into the chart's
shares.correctThreadPercentages, which a test compares with the reports.

Writes docs/reports/mps-products-DEVICE-cublas-VERSION.json. The GPU's settings do not change. Needs
a Python with torch, msgspec and PyYAML, and the driver's nvidia-cuda-mps-control.
"""

import argparse
import ctypes
import itertools
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from inference_shares import (
    EVERY_PERCENT,
    REPORTS,
    control_program,
    daemon,
    environment,
    percents_of,
)
from workloads_runs import device_name
from workloads_suite import ask_driver, versions

HEIGHTS = (1, 8, 24, 48, 96, 192, 242, 384, 512, 777, 1024, 2048)
WEIGHTS = (
    (768, 768), (768, 3072), (1024, 2048), (2048, 2048), (5632, 2048), (2048, 5632),
    (4096, 14336), (14336, 4096), (8192, 8192),
)  # fmt: skip
"""Columns of the product, and depth: layers of small and middling language models."""

TOLERANCE = 0.02
"""Of the largest element; rounding to 16 bits explains less than half of it."""

COMMON = ("device", "cublas")
"""Of a result; the same in all."""

MEMORY_MIB = 6144
SECONDS = 120.0

Report = dict[str, Any]


def tried() -> Report:
    """Compute all products in this process; return how many are wrong, and the first of them."""
    import torch  # noqa: PLC0415  the process that starts the others needs none

    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    wrong: list[str] = []
    count = 0
    for dtype in (torch.bfloat16, torch.float16):
        for columns, depth in WEIGHTS:
            weight = (torch.randn(columns, depth, device="cuda") / depth**0.5).to(dtype)
            for height in HEIGHTS:
                rows = torch.randn(height, depth, device="cuda").to(dtype)
                exact = rows.float() @ weight.float().t()
                found = torch.full((height, columns), torch.nan, device="cuda", dtype=dtype)
                torch.mm(rows, weight.t(), out=found)
                count += 1
                difference = (found.float() - exact).abs().max() / exact.abs().max()
                # A NaN is not less than anything.
                if not float(difference) < TOLERANCE:
                    kind = str(dtype).removeprefix("torch.")
                    wrong.append(f"{height} x {depth} x {columns}, {kind}")
    properties = torch.cuda.get_device_properties(0)
    return {
        "multiprocessors": properties.multi_processor_count,
        "device": properties.name,
        "cublas": cublas_version(),
        "products": count,
        "wrong": len(wrong),
        "first_wrong": wrong[0] if wrong else "",
    }


def cublas_version() -> str:
    """Return the version of the library that torch has loaded."""
    import torch  # noqa: PLC0415  the process that starts the others needs none

    toolkit = str(torch.version.cuda).partition(".")[0]
    number = int(ctypes.CDLL(f"libcublasLt.so.{toolkit}").cublasLtGetVersion())
    return f"{number // 10000}.{number // 100 % 100}"


def measure(percent: int, pipes: Path) -> Report:
    """Try one percentage in a process of its own.

    Raises:
        SystemExit: it ended without a result.
    """
    done = subprocess.run(  # noqa: S603  a list, no shell
        [sys.executable, __file__, "--child"],
        env=os.environ | environment(percent, percent, MEMORY_MIB, pipes),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{percent} %: {done.stderr}")
    result: Report = {"percent": percent} | json.loads(done.stdout.splitlines()[-1])
    print(
        f"{percent} %: {result['multiprocessors']} multiprocessors, {result['wrong']} of"
        f" {result['products']} wrong",
        flush=True,
    )
    return result


def correct_ranges(results: list[Report]) -> list[list[int]]:
    """Return first and last of each run of neighbouring percentages with nothing wrong.

    Args:
        results: of `measure`, in ascending order of percentage.
    """
    correct = [each["percent"] for each in results if not each["wrong"]]
    # Neighbours have the same difference from their place in the list.
    runs = itertools.groupby(enumerate(correct), key=lambda pair: pair[1] - pair[0])
    found = [[percent for _, percent in run] for _, run in runs]
    return [[run[0], run[-1]] for run in found]


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    every = ",".join(map(str, EVERY_PERCENT))
    parser.add_argument(
        "--percents", type=percents_of, default=every, help="separated by commas; every one"
    )
    parser.add_argument(
        "--at-once",
        type=int,
        choices=EVERY_PERCENT,
        default=10,
        metavar="N",
        help="processes on the GPU at a time",
    )
    parser.add_argument("--out", type=Path, default=REPORTS, help="folder for the report")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure, print and leave the report."""
    options = arguments()
    if options.child:
        print(json.dumps(tried()))
        return
    with daemon(control_program()) as pipes, ThreadPoolExecutor(options.at_once) as pool:
        results = list(pool.map(partial(measure, pipes=pipes), options.percents))
    device, cublas = (str(results[0][key]) for key in COMMON)
    report = {
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device,
        "cublas": cublas,
        "driver": next(iter(ask_driver("driver_version")), ""),
        "versions": versions(),
        "correct": correct_ranges(results),
        "results": [{k: v for k, v in each.items() if k not in COMMON} for each in results],
    }
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"mps-products-{device_name(device)}-cublas-{cublas}.json"
    path.write_text(json.dumps(report, indent=1) + "\n")
    print(f"correct: {report['correct']} -> {path}")


if __name__ == "__main__":
    main()
