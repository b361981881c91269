# SPDX-License-Identifier: Apache-2.0
"""Reads a trace file of torch's profiler.

The file is in Chrome's trace format: times in microseconds. Where there was a GPU, its kernels and
copies are what happened; else the operators of the CPU, each without those that it called.
"""

import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GPU_CATEGORIES = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
CPU_CATEGORIES = frozenset({"cpu_op"})


@dataclass(frozen=True)
class Event:
    """An event of a trace.

    Attributes:
        name: name of a kernel, a copy, or an operator.
        start_us: since whenever.
        end_us: in the same clock.
        self_us: without what it called.
    """

    name: str
    start_us: float
    end_us: float
    self_us: float


@dataclass(frozen=True)
class Trace:
    """Events of a trace.

    Attributes:
        events: of the GPU, or of the CPU where no GPU was seen.
        of_gpu: which.
        span_us: from the first thing to the last, on whichever device.
    """

    events: tuple[Event, ...]
    of_gpu: bool
    span_us: float


def read(path: Path) -> Trace:
    """Read a trace file, packed or not."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        return parse(json.load(file)["traceEvents"])


def parse(entries: Iterable[dict[str, Any]]) -> Trace:
    """Return what happened on the GPU, or on the CPU where nothing did there."""
    timed = [entry for entry in entries if entry.get("ph") == "X" and "dur" in entry]
    of_gpu = [entry for entry in timed if entry.get("cat") in GPU_CATEGORIES]
    of_cpu = [entry for entry in timed if entry.get("cat") in CPU_CATEGORIES]
    events = tuple(map(_alone, of_gpu)) or tuple(_nested(of_cpu))
    ends = [(entry["ts"], entry["ts"] + entry["dur"]) for entry in (*of_gpu, *of_cpu)]
    span = max(end for _, end in ends) - min(start for start, _ in ends) if ends else 0
    return Trace(events=events, of_gpu=bool(of_gpu), span_us=span)


def _alone(entry: dict[str, Any]) -> Event:
    start, duration = entry["ts"], entry["dur"]
    return Event(str(entry["name"]), start, start + duration, duration)


def _nested(entries: Iterable[dict[str, Any]]) -> Iterator[Event]:
    """Take from each operator's time that of the operators which it called."""
    threads: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for entry in entries:
        threads[entry.get("tid")].append(entry)
    for thread in threads.values():
        thread.sort(key=lambda entry: (entry["ts"], -entry["dur"]))
        for entry, called in zip(thread, _called(thread), strict=True):
            event = _alone(entry)
            own = max(0.0, entry["dur"] - called)
            yield Event(event.name, event.start_us, event.end_us, own)


def _called(thread: list[dict[str, Any]]) -> list[float]:
    """Return for each operator of a thread the time of those that it called directly."""
    called = [0.0] * len(thread)
    open_operators: list[int] = []
    for index, entry in enumerate(thread):
        while open_operators and _end(thread[open_operators[-1]]) <= entry["ts"]:
            open_operators.pop()
        if open_operators:
            called[open_operators[-1]] += entry["dur"]
        open_operators.append(index)
    return called


def _end(entry: dict[str, Any]) -> float:
    end: float = entry["ts"] + entry["dur"]
    return end
