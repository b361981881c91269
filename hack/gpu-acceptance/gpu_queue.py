# SPDX-License-Identifier: Apache-2.0
"""Checks of `make demo-gpu` for the queue: a gang waits until all its GPUs are free."""

from collections.abc import Callable, Iterator
from typing import Any

from gpu_jobs import Bench, Broken, gpu_job, measured, phase

Json = dict[str, Any]

FIRST, GANG, SUMS = "attention", "resnet50", "collectives"
SMALLEST_BYTES, LARGEST_BYTES = 1 << 20, 1 << 30
STEPS = 10
BATCH = 256


def attention() -> Json:
    """Return a job with fused attention on one GPU."""
    workload = {"name": "attention", "args": ["--require-gpu"]}
    return gpu_job(FIRST, {"gpus": 1, "workload": workload})


def resnet50(workers: int) -> Json:
    """Return a training job with a worker per GPU; compilation would take longer than the steps."""
    options = ["--require-gpu", f"--steps={STEPS}", f"--batch-size={BATCH}", "--compile=off"]
    spec = {"workers": workers, "gpus": 1, "workload": {"name": "resnet50", "args": options}}
    return gpu_job(GANG, spec)


def collectives(gpus: int) -> Json:
    """Return a job of one worker with all GPUs: all NCCL operations with 1 MiB to 1 GiB.

    Over NVLink, without multicast.
    """
    options = ["--require-gpu", f"--smallest={SMALLEST_BYTES}", f"--size={LARGEST_BYTES}"]
    return gpu_job(SUMS, {"gpus": gpus, "workload": {"name": "collectives", "args": options}})


def check_gang(bench: Bench, gpus: list[Json]) -> Iterator[Json]:
    """Check that a gang of all GPUs waits while one is held, without holding any, and then runs."""
    bench.apply(attention())
    bench.until(lambda: phase(bench.job(FIRST)) == "Running", what="attention runs")
    bench.apply(resnet50(len(gpus)))
    bench.until(lambda: bool(bench.job(GANG).get("status", {}).get("message")), what="it waits")
    waiting = bench.job(GANG)["status"]
    if waiting.get("placement") or phase(bench.job(FIRST)) != "Running":
        raise Broken(f"a gang of {len(gpus)} runs while another job holds a GPU: {waiting}")
    (first,) = bench.finished(FIRST)
    yield {"check": "fused attention on one GPU", **measured(first, gpus)}
    what = f"a gang of {len(gpus)} waits for the GPU of another job, and holds none"
    yield {"check": what, "figures": {"message": waiting["message"]}}
    (gang,) = bench.finished(GANG)
    _check_order(bench)
    yield {"check": f"ResNet-50 by a gang of {len(gpus)}", **measured(gang, gpus)}


def _check_order(bench: Bench) -> None:
    _, ended = bench.span_of(FIRST)
    starts = sorted(started for started, _ in bench.spans_of(GANG))
    if starts[0] < ended:
        raise Broken(f"a worker of the gang started at {starts[0]}, before {FIRST} ended: {ended}")


def run_queue(bench: Bench, timed: Callable[[str, Callable[[], Json]], Json]) -> Iterator[Json]:
    """Run all checks; yield their results."""
    gpus = bench.gpus()
    results = check_gang(bench, gpus)
    for name in ("attention", "a gang that waits", "resnet50"):
        yield timed(name, lambda: next(results))
    if len(gpus) > 1:
        bench.apply(collectives(len(gpus)))
        what = f"collectives over {len(gpus)} GPUs of one worker"
        yield timed(SUMS, lambda: {"check": what, **measured(bench.finished(SUMS)[0], gpus)})
