# SPDX-License-Identifier: Apache-2.0
"""Results of workers in a status: those of the attempt that ends the job.

Results of earlier attempts are never kept. Whether the job has ended never depends on results.
"""

from msgspec import structs

from gpupack_crds.gpujob_status import GpuJobStatus, WorkerResult
from gpupack_kubeclient import errors
from gpupack_operator.decision.conditions import Type, Writer
from gpupack_operator.decision.readings import Readings
from gpupack_operator.decision.reasons import JobReason


def with_results(status: GpuJobStatus, found: Readings, write: Writer) -> GpuJobStatus:
    """Return the status with the results that were read."""
    status = structs.replace(status, results=found.results, headline=found.headline)
    if found.problems:
        message = "; ".join(found.problems)
        return write.set(status, Type.RESULTS_VALID, "False", JobReason.RESULT_UNREADABLE, message)
    if not found.results:
        message = "no result of a worker was found"
        return write.set(status, Type.RESULTS_VALID, "Unknown", JobReason.NO_RESULTS, message)
    message = f"results of {len(found.results)} workers were read"
    return write.set(status, Type.RESULTS_VALID, "True", JobReason.RESULTS_READ, message)


def all_of(status: GpuJobStatus) -> tuple[WorkerResult, ...]:
    """Return the results of the job, and those of workers that ended before the others."""
    ended = status.ended_workers
    return status.results + (ended.results if ended else ())


def without_results(status: GpuJobStatus, error: errors.Refused, write: Writer) -> GpuJobStatus:
    """Return the status without the results that the API server refuses."""
    ended = status.ended_workers
    bare = structs.replace(ended, results=()) if ended else None
    status = structs.replace(status, results=(), headline="", ended_workers=bare)
    message = f"the API server refuses the results: {error.said}"
    return write.set(status, Type.RESULTS_VALID, "False", JobReason.RESULT_UNREADABLE, message)
