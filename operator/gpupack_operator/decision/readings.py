# SPDX-License-Identifier: Apache-2.0
"""What the workers measured, from their termination messages.

A message that cannot be read is reported and changes nothing else: whether the job succeeded is
decided without it.
"""

import dataclasses
from collections.abc import Iterable

import msgspec

from gpupack_crds.errors import ResultUnreadable
from gpupack_crds.gpujob_status import WorkerResult
from gpupack_crds.results import Result, looks_like_result, read_result
from gpupack_crds.wire import stored_bytes
from gpupack_operator.decision import ends
from gpupack_operator.decision.view import NONE_ENDED, Ended
from gpupack_operator.decision.workers import Worker, by_index

RESULTS_BYTES = 196_608
"""Results of a thousand workers must not outgrow what etcd takes in one object."""


@dataclasses.dataclass(frozen=True, slots=True)
class Readings:
    """Results in the order of the workers, what could not be read, and which workers failed."""

    results: tuple[WorkerResult, ...]
    problems: tuple[str, ...]
    failed: frozenset[int] = frozenset()

    @property
    def headline(self) -> str:
        """Worker 0 speaks for the job; without its word, the first that has one.

        One that failed goes first: the others' good figures would hide what it found.
        """
        told = [result for result in self.results if result.headline]
        first = min(told, key=lambda result: result.worker not in self.failed, default=None)
        return first.headline if first else ""


NONE = Readings(results=(), problems=())
"""Of a job that ends while it has no workers."""


def read(workers: Iterable[Worker], ended: Ended = NONE_ENDED) -> Readings:
    """Read the results of all workers, of those that failed too: a sick GPU's is worth most.

    Where a worker has no pod any more, or its pod gives no result any more (a request to end seems
    to come before its end, by another clock), its result is the one that was kept (`ended`).

    Words that a failed worker wrote are no attempt at a result: they say why it failed. What a
    worker wrote when it was asked to end is about a part of its work, and is no result of the job.
    """
    problems: list[str] = []
    each = by_index(workers)
    results = {result.worker: result for result in ended.results}
    for index, worker in each.items():
        if not isinstance(worker.end, ends.ByItself):
            continue
        if not worker.succeeded and not looks_like_result(worker.result):
            continue
        try:
            result = read_result(worker.result)
        except ResultUnreadable as error:
            problems.append(f"worker {index}: {error}")
            continue
        if result:
            results[index] = _of_worker(index, result)
    failed = ended.ignored.union(index for index, worker in each.items() if worker.exit)
    in_order = [results[index] for index in sorted(results)]
    return Readings(results=_within_budget(in_order), problems=tuple(problems), failed=failed)


def _of_worker(index: int, result: Result) -> WorkerResult:
    return WorkerResult(
        worker=index,
        workload=result.workload,
        headline=result.headline,
        verified=result.verified,
        simulated=result.simulated,
        metrics=dict(result.metrics),
        communication=result.communication,
    )


def _within_budget(results: list[WorkerResult]) -> tuple[WorkerResult, ...]:
    """All headlines before any figures; what does not fit is left out."""
    left = RESULTS_BYTES
    kept: list[tuple[WorkerResult, WorkerResult]] = []
    for result in results:
        bare = msgspec.structs.replace(result, metrics={}, communication=None)
        if (size := stored_bytes(bare)) <= left:
            kept.append((result, bare))
            left -= size
    found: list[WorkerResult] = []
    for result, bare in kept:
        more = stored_bytes(result) - stored_bytes(bare)
        found.append(result if more <= left else bare)
        left -= more if more <= left else 0
    return tuple(found)
