# SPDX-License-Identifier: Apache-2.0
"""Checks of `make demo-gpu` for limited shares: limits hold, and only an offending pod fails."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpu_jobs import IMAGE, Bench, Broken

from gpupack_devcluster.kubectl import wait_until

Json = dict[str, Any]

LOAD = Path(__file__).with_name("gpu_load.py")
HALF = (50, "30Gi")
THIRD = (33, "30Gi")
EQUAL = 0.10
"""Maximum relative difference of the rates of two equal shares."""
ALONE = 0.9
"""Minimum of their sum relative to the rate of a pod with the whole GPU."""


def pod(
    name: str, *work: str, share: tuple[int, str] | None = HALF, isolation: str = "limited"
) -> Json:
    """Return a standalone pod that computes on a share, or on a whole GPU."""
    limits = {"gpupack.dev/gpu": "1"}
    if share:
        percent, memory = share
        limits = {
            "gpupack.dev/gpu-share": "1",
            "gpupack.dev/gpu-percent": str(percent),
            "gpupack.dev/gpu-memory": memory,
        }
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["python", "-c", LOAD.read_text(), *work],
        "resources": {"limits": limits},
    }
    metadata: Json = {"name": name}
    if share:
        metadata["annotations"] = {"gpupack.dev/isolation": isolation}
    spec = {"schedulerName": "gpupack", "restartPolicy": "Never", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def check_rates(bench: Bench, *, during: Callable[[], None]) -> Json:
    """Check that two halves have equal rates and a whole GPU's sum, while the agent is killed."""
    bench.apply(pod("alone", "gemm", "3", share=None))
    alone = bench.view("alone")["tflops"]
    bench.apply(pod("half-a", "gemm", "9"), pod("half-b", "gemm", "9"))
    bench.running("half-a", "half-b")
    during()
    halves = [bench.view(name) for name in ("half-a", "half-b")]
    rates = [half["tflops"] for half in halves]
    seen: Json = {"alone": alone, "halves": rates, "sms": [half["sms"] for half in halves]}
    seen["free_gib"] = [half["free_gib"] for half in halves]
    if max(rates) > min(rates) * (1 + EQUAL) or sum(rates) < ALONE * alone:
        raise Broken(f"two halves of a GPU compute {rates} TFLOP/s, one alone {alone}")
    what = "two limited shares (50%, 30 GiB) compute alike while the agent is killed"
    return {"check": what, "figures": seen}


def check_memory(bench: Bench) -> Json:
    """Check that a pod gets no memory beyond its share, and that others on the GPU continue."""
    bench.apply(
        pod("greedy", "allocate", "40", share=THIRD),
        pod("double", "double", "20", share=THIRD),
        pod("neighbour", "gemm", "12", share=THIRD),
    )
    greedy = bench.view("greedy")
    if greedy["allocated_gib"] > 30:  # noqa: PLR2004 - of its share
        raise Broken(f"a share of 30 GiB was given {greedy}")
    return {"check": "a share gets no more memory than its limit", "figures": greedy}


def check_overrun(bench: Bench) -> Json:
    """Check that only two processes with 20 GiB each in a share of 30 GiB are ended."""
    began = time.monotonic()
    ended = bench.ended("double")
    seconds = round(time.monotonic() - began, 1)
    neighbour, said = bench.view("neighbour"), bench.events("double")
    reasons = {each["reason"] for each in said}
    if (
        ended["status"]["phase"] != "Failed"
        or "died" in neighbour
        or "GpuShareTerminated" not in reasons
    ):
        raise Broken(f"it ended as {ended['status']}; events {said}; neighbour {neighbour}")
    notes = [each["note"] for each in said if each["reason"].startswith("GpuShare")]
    seen = {"events": notes, "neighbour": neighbour, "seconds": seconds}
    return {"check": "two processes that exceed a share together are ended alone", "figures": seen}


def check_latency(bench: Bench) -> Json:
    """Measure the latency of a 10 % share next to a 90 % trainer, with and without limits."""
    seen: Json = {}
    for isolation in ("limited", "cooperative"):
        small = pod("small", "latency", "3", share=(10, "10Gi"), isolation=isolation)
        large = pod("large", "gemm", "6", share=(90, "60Gi"), isolation=isolation)
        bench.apply(small, large)
        seen[isolation] = {"latency": bench.view("small"), "neighbour": bench.view("large")}
    return {"check": "latency of a 10% share next to a 90% trainer", "figures": seen}


def run_limits(
    bench: Bench,
    timed: Callable[[str, Callable[[], Json]], Json],
    *,
    kill_agent: Callable[[], None],
) -> Iterator[Json]:
    """Run all checks once the supervisor has reported that it runs."""
    wait_until(
        lambda: all(gpu.get("limits") == "MPS" for gpu in bench.gpus()),
        what="limited shares",
        seconds=20,
        pause_seconds=0.5,
    )
    yield timed("limited shares", lambda: check_rates(bench, during=kill_agent))
    yield timed("a limit on memory", lambda: check_memory(bench))
    yield timed("an overrun", lambda: check_overrun(bench))
    yield timed("latency", lambda: check_latency(bench))
