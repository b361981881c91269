# SPDX-License-Identifier: Apache-2.0
"""What the workers measured, from their termination messages.

A message that cannot be read is reported and changes nothing else: a job that ran is a success.
"""

import dataclasses

import msgspec

from gpupack_crds.errors import ResultUnreadable
from gpupack_crds.gpujob_status import WorkerResult
from gpupack_crds.results import Result, read_result
from gpupack_operator.decision.workers import Worker, by_index

RESULTS_BYTES = 262_144
"""Results of a thousand workers must not outgrow what etcd takes in one object."""


@dataclasses.dataclass(frozen=True, slots=True)
class Readings:
    """Results in the order of the workers, and what could not be read."""

    results: tuple[WorkerResult, ...]
    problems: tuple[str, ...]

    @property
    def headline(self) -> str:
        """Worker 0 speaks for the job; without its word, the first that has one."""
        return next((result.headline for result in self.results if result.headline), "")


def read(workers: tuple[Worker, ...]) -> Readings:
    """Read the results of the workers that succeeded.

    Others there are where failures are ignored: what they wrote says why they failed.
    """
    results: list[WorkerResult] = []
    problems: list[str] = []
    succeeded = tuple(worker for worker in workers if worker.succeeded)
    for index, worker in by_index(succeeded).items():
        try:
            result = read_result(worker.result)
        except ResultUnreadable as error:
            problems.append(f"worker {index}: {error}")
            continue
        if result:
            results.append(_of_worker(index, result))
    return Readings(results=_within_budget(results), problems=tuple(problems))


def _of_worker(index: int, result: Result) -> WorkerResult:
    return WorkerResult(
        worker=index,
        workload=result.workload,
        headline=result.headline,
        verified=result.verified,
        simulated=result.simulated,
        metrics=dict(result.metrics),
    )


def _within_budget(results: list[WorkerResult]) -> tuple[WorkerResult, ...]:
    kept: list[WorkerResult] = []
    size = 0
    for result in results:
        size += len(msgspec.json.encode(result))
        kept.append(
            result if size <= RESULTS_BYTES else msgspec.structs.replace(result, metrics={})
        )
    return tuple(kept)
