# SPDX-License-Identifier: Apache-2.0
"""Verdicts of burn-ins about a node's GPUs, and the GPUJobs that they need.

    GPUNode.spec.quarantine, phase Acceptance ─► one GPUJob `burn-in` of one worker for each
        its results ─► GPUNode.status.measured ─► the phase that follows (`decision.quarantine`)
    all of a node's GPUs passed ─► one GPUJob `all-reduce` of one worker ─► status.allReduce

A worker whose GPU is not healthy ends with an exit status that the job ignores: the results of the
others count. Any other end says nothing about a GPU whose worker left no result.
"""

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from msgspec import structs

from gpupack_crds.acceptance import Acceptance
from gpupack_crds.gpujob_status import WorkerResult
from gpupack_crds.gpunode import (
    MAX_GPUS,
    TAKES_WORK,
    AllReduce,
    Measured,
    Outcome,
    Quarantine,
)
from gpupack_crds.kinds import GpuJob, GpuNode
from gpupack_crds.placement import by_worker
from gpupack_crds.times import format_time
from gpupack_operator.decision import times

AcceptanceTest = Literal["burn-in", "all-reduce"]

MAX_MESSAGE: Final = 256
_NEVER: Final = "1970-01-01T00:00:00Z"

MIN_ALL_REDUCE_GPUS: Final = 2
"""Smallest number of GPUs for an all-reduce."""


def verdict_of(node: GpuNode, entry: Quarantine) -> Measured | None:
    """Return what was measured since the GPU entered its phase; None: nothing."""
    found = (each for each in node.status.measured if each.gpu == entry.gpu)
    since = times.read(entry.since) if entry.since else None
    return next((each for each in found if since and times.read(each.at) >= since), None)


def in_maintenance(node: GpuNode, gpu: str) -> bool:
    """Tell whether an administrator wants no new work on a GPU."""
    return any(entry.covers(gpu, node.status.mode) for entry in node.spec.maintenance)


def untested_gpus(node: GpuNode) -> tuple[str, ...]:
    """Return the GPUs in acceptance that can be tested and have no verdict yet."""
    fit = {
        each.uuid
        for each in node.status.devices
        if each.health in TAKES_WORK and not in_maintenance(node, each.uuid)
    }
    entries = (each for each in node.spec.quarantine if each.phase == "Acceptance")
    return tuple(e.gpu for e in entries if e.gpu in fit and verdict_of(node, e) is None)


def updated_measurements(
    node: GpuNode, jobs: Mapping[AcceptanceTest, GpuJob], rules: Acceptance, now: dt.datetime
) -> tuple[Measured, ...]:
    """Return `status.measured` with an ended burn-in's results, and GPUs that got none in time."""
    waiting = {gpu: _since(node, gpu) for gpu in untested_gpus(node)}
    found = dict[str, Measured]()
    job = jobs.get("burn-in")
    if job is not None and (ended := _end(job)):
        found = _results(job, [gpu for gpu, since in waiting.items() if since <= ended], now)
    for gpu, since in waiting.items():
        if gpu not in found and now >= times.after(since, rules.timeout_seconds):
            said = f"no burn-in reported a result within {rules.timeout_seconds} s"
            at = format_time(now)
            found[gpu] = Measured(gpu=gpu, at=at, outcome="Unknown", message=said)
    listed = {each.uuid for each in node.status.devices}
    before = {each.gpu: each for each in node.status.measured if not listed or each.gpu in listed}
    merged = before | {gpu: _with_figures(new, before.get(gpu)) for gpu, new in found.items()}
    return tuple(merged.values())[:MAX_GPUS]


def updated_all_reduce(
    node: GpuNode, jobs: Mapping[AcceptanceTest, GpuJob], now: dt.datetime
) -> AllReduce | None:
    """Return `status.allReduce` with the result of the job that ended."""
    job = jobs.get("all-reduce")
    last, needed = _last_since(node), all_reduce_gpus(node)
    if job is None or not needed or (ended := _end(job)) is None or ended < last:
        return node.status.all_reduce
    result = next(iter(job.status.results), None)
    figure = _figure(result.metrics, "all_reduce_bus_gb_per_s") if result else None
    return AllReduce(
        at=format_time(now),
        gpus=job.spec.gpus or MIN_ALL_REDUCE_GPUS,
        bus_gb_per_s=figure,
        message="" if figure is not None else job.status.message[:MAX_MESSAGE],
        simulated=bool(result and result.simulated),
    )


def all_reduce_gpus(node: GpuNode) -> int:
    """Return how many GPUs an all-reduce needs: all of the node's once all have passed; 0: none."""
    entries = {e.gpu: e for e in node.spec.quarantine if e.phase == "Acceptance"}
    whole = [d for d in node.status.devices if not d.mig_parent]
    if len(whole) < MIN_ALL_REDUCE_GPUS or {d.uuid for d in whole} != entries.keys():
        return 0
    verdicts = [verdict_of(node, entry) for entry in entries.values()]
    if not all(each is not None and each.outcome == "Passed" for each in verdicts):
        return 0
    done = node.status.all_reduce
    return 0 if done is not None and times.read(done.at) >= _last_since(node) else len(whole)


def gpus_to_test(node: GpuNode, test: AcceptanceTest) -> int:
    """Return the number of GPUs that need the test; 0: no test is needed."""
    return len(untested_gpus(node)) if test == "burn-in" else all_reduce_gpus(node)


def is_obsolete(job: GpuJob, test: AcceptanceTest, needed: int) -> bool:
    """Tell whether the job is no longer useful and is deleted.

    Another one follows if one is needed.
    """
    if job.status.finished:
        return needed > 0
    requested = job.spec.workers if test == "burn-in" else job.spec.gpus
    return requested != needed and (needed == 0 or not job.status.holds_placement)


def _since(node: GpuNode, gpu: str) -> dt.datetime:
    """Return the time at which the GPU entered acceptance."""
    found = (each.since for each in node.spec.quarantine if each.gpu == gpu and each.since)
    return times.read(next(found, _NEVER))


def _last_since(node: GpuNode) -> dt.datetime:
    """Return the time at which the last of the node's GPUs entered acceptance."""
    entries = (each for each in node.spec.quarantine if each.phase == "Acceptance" and each.since)
    return max((_since(node, each.gpu) for each in entries), default=times.read(_NEVER))


def _end(job: GpuJob) -> dt.datetime | None:
    """Return when the job ended; None: it has not ended."""
    ended = job.status.finished_at
    return times.read(ended) if job.status.finished and ended else None


def _results(job: GpuJob, waiting: Iterable[str], now: dt.datetime) -> dict[str, Measured]:
    """Return a verdict for each GPU of the job.

    A job without a placement gives a verdict for all waiting GPUs.
    """
    at = format_time(now)
    workers = by_worker(job.status.placement)
    if not workers:
        said = f"no burn-in ran: {job.status.message}"[:MAX_MESSAGE]
        return {g: Measured(gpu=g, at=at, outcome="Unknown", message=said) for g in waiting}
    results = {each.worker: each for each in job.status.results}
    pairs = ((device.uuid, results.get(w.worker)) for w in workers for device in w.devices)
    return {
        gpu: _of_result(gpu, result, at, job.status.message)
        for gpu, result in pairs
        if gpu in set(waiting)
    }


def _of_result(gpu: str, result: WorkerResult | None, at: str, message: str) -> Measured:
    healthy = result.metrics.get("healthy") if result else None
    if result is None or not isinstance(healthy, bool):
        said = f"its burn-in left no verdict: {message}"[:MAX_MESSAGE]
        return Measured(gpu=gpu, at=at, outcome="Unknown", message=said)
    outcome: Outcome = "Passed" if healthy else "Failed"
    said = result.headline if healthy else str(result.metrics.get("findings", ""))
    return Measured(
        gpu=gpu,
        at=at,
        outcome=outcome,
        message=said[:MAX_MESSAGE],
        tflops=_figure(result.metrics, "gemm_tflops"),
        memory_gb_per_s=_figure(result.metrics, "device_copy_gb_per_s"),
        host_to_device_gb_per_s=_figure(result.metrics, "host_to_device_gb_per_s"),
        device_to_host_gb_per_s=_figure(result.metrics, "device_to_host_gb_per_s"),
        simulated=bool(result.simulated),
    )


def _figure(metrics: Mapping[str, Any], name: str) -> float | None:
    """Return a finite number that is not negative, or None: a container wrote the value."""
    value = metrics.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < float("inf") else None


def _with_figures(new: Measured, old: Measured | None) -> Measured:
    if new.outcome != "Unknown" or old is None:
        return new
    return structs.replace(old, at=new.at, outcome=new.outcome, message=new.message)
