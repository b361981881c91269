# SPDX-License-Identifier: Apache-2.0
"""Measurements of the workers, from their termination messages.

A message that cannot be read is reported and changes nothing else: it does not affect whether the
job succeeded.
"""

import dataclasses
from collections.abc import Iterable

import msgspec

from gpupack_crds.errors import ResultUnreadable
from gpupack_crds.gpujob_status import WorkerResult
from gpupack_crds.results import Result, looks_like_result, read_result
from gpupack_crds.wire import stored_bytes
from gpupack_operator.decision import container_ends
from gpupack_operator.decision.view import NONE_ENDED, RecordedEnds
from gpupack_operator.decision.workers import Worker, by_index

MAX_RESULTS_BYTES = 196_608
"""Limit of a job's results: those of a thousand workers must fit into one object of etcd."""


@dataclasses.dataclass(frozen=True, slots=True)
class Readings:
    """Results in the order of the workers, messages that could not be read, and failed workers."""

    results: tuple[WorkerResult, ...]
    problems: tuple[str, ...]
    failed: frozenset[int] = frozenset()

    @property
    def headline(self) -> str:
        """Headline of the job: worker 0's, or else that of the first worker that has one.

        A failed worker's headline goes first: good measurements of other workers would hide it.
        """
        with_headline = [result for result in self.results if result.headline]
        first = min(
            with_headline, key=lambda result: result.worker not in self.failed, default=None
        )
        return first.headline if first else ""


NONE = Readings(results=(), problems=())
"""Readings of a job that ends while it has no workers."""


def read(workers: Iterable[Worker], ended: RecordedEnds = NONE_ENDED) -> Readings:
    """Read the results of all workers; those of failed workers are often the most useful.

    If a worker has no pod any more, or its pod gives no result any more (a request to end seems to
    precede its end, by another clock), the recorded result counts (`ended`).

    Text of a failed worker is not an invalid result: it says why the worker failed. What a worker
    wrote after a request to end is about a part of its work, and is no result of the job.
    """
    problems: list[str] = []
    each = by_index(workers)
    results = {result.worker: result for result in ended.results}
    for index, worker in each.items():
        if not isinstance(worker.end, container_ends.EndedByItself):
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
    """Keep all headlines before any measurements; leave out what exceeds the limit."""
    left = MAX_RESULTS_BYTES
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
