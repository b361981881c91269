# SPDX-License-Identifier: Apache-2.0
"""Computes on a share of a GPU, and prints its figures as one line of JSON.

`gemm SECONDS`, `attempt NUMBER` (the same, a minute in attempt 1), `latency SECONDS`, `allocate
GIB`, `double GIB` (two processes with so much each).
"""

import json
import subprocess
import sys
import time
from typing import Any

import torch

GIB = 1 << 30
SIZE, SMALL = 8192, 512
ROUND = 20


def matrices(size: int) -> tuple[torch.Tensor, ...]:
    """Return two random matrices and an empty one for their product."""
    made = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    return tuple(made)


def gemm(seconds: float) -> dict[str, Any]:
    """Return the median rate over rounds of products."""
    a, b, out = matrices(SIZE)
    rates = []
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            start = time.monotonic()
            for _ in range(ROUND):
                torch.mm(a, b, out=out)
            torch.cuda.synchronize()
            rates.append(ROUND * 2 * SIZE**3 / (time.monotonic() - start) / 1e12)
    except RuntimeError as error:
        return {"died": str(error)[:120]}
    return {"tflops": round(sorted(rates)[len(rates) // 2], 1)}


def attempt(number: float) -> dict[str, Any]:
    """Compute products for a minute in the first attempt, and shortly in others."""
    return gemm(60 if number == 1 else 2)


def latency(seconds: float) -> dict[str, Any]:
    """Return the milliseconds of small products, one every 5 ms."""
    a, b, out = matrices(SMALL)
    times = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        start = time.monotonic()
        torch.mm(a, b, out=out)
        torch.cuda.synchronize()
        times.append(1000 * (time.monotonic() - start))
        time.sleep(0.005)
    times.sort()
    pick = {"p50_ms": 0.5, "p99_ms": 0.99}
    return {name: round(times[int(len(times) * part)], 3) for name, part in pick.items()}


def allocate(gib: float) -> dict[str, Any]:
    """Return how much memory it gets, in pieces of one GiB."""
    kept: list[torch.Tensor] = []
    try:
        while len(kept) < gib:
            kept.append(torch.empty(GIB, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        pass
    return {"allocated_gib": len(kept)}


def hold(gib: float) -> dict[str, Any]:
    """Hold so much memory for a minute, and compute."""
    kept = torch.empty(int(gib * GIB), dtype=torch.uint8, device="cuda")
    return {"held": kept.numel()} | gemm(60)


def double(gib: float) -> dict[str, Any]:
    """Run two processes of `hold`; fail if one of them fails."""
    code = sys.orig_argv[sys.orig_argv.index("-c") + 1]
    both = [subprocess.Popen([sys.executable, "-c", code, "hold", str(gib)]) for _ in range(2)]
    statuses = [each.wait() for each in both]
    if any(statuses):
        sys.exit(f"its processes ended with {statuses}")
    return {}


WORK = {
    "gemm": gemm,
    "attempt": attempt,
    "latency": latency,
    "allocate": allocate,
    "hold": hold,
    "double": double,
}

if __name__ == "__main__":
    name, amount = sys.argv[1:]
    figures: dict[str, Any] = {}
    if name != "double":
        free, _ = torch.cuda.mem_get_info()
        figures["free_gib"] = round(free / GIB, 1)
        figures["sms"] = torch.cuda.get_device_properties(0).multi_processor_count
    print(json.dumps(figures | WORK[name](float(amount))))
