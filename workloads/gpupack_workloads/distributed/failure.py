# SPDX-License-Identifier: Apache-2.0
"""Reports why a process of a gang ends to its launcher, and reads such reports there.

The exit status carries the kind of an error. The text goes by the file that torch's launcher has
for each process: it writes there itself whatever a process did not expect.
"""

import logging
import os
from pathlib import Path

from torch.distributed import DistError
from torch.distributed.elastic.multiprocessing.errors import (
    ChildFailedError,
    ProcessFailure,
    get_error_handler,
)
from torch.distributed.elastic.rendezvous import RendezvousError, RendezvousTimeoutError
from torch.multiprocessing import ProcessExitedException

from gpupack_workloads.errors import (
    BadArgument,
    PeersMissing,
    WorkloadError,
    error_of_status,
)
from gpupack_workloads.settings import Gang

TORCHS_LOG = "torch.distributed.elastic.multiprocessing.api"


def write_reason(error: BaseException) -> None:
    """Leave an error's text to the launcher; the process has to end with the error's status.

    The first stays: by its time the launcher knows which process failed first.
    """
    left = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if left is None or not Path(left).exists():
        get_error_handler().record_exception(error)


def why(failed: ChildFailedError) -> WorkloadError:
    """Return the error of the process that failed first."""
    rank, failure = failed.get_first_failure()
    kind = type(error_of_status(failure.exitcode, ""))
    reason = reason_of(failure).removeprefix(f"{kind.__name__}: ")
    return kind(f"process {rank}: {reason}")


def reason_of(failure: ProcessFailure) -> str:
    """Return the first line of a process's reason, or of torch's text about a signal."""
    message = failure.error_file_data["message"]
    if isinstance(message, dict):
        return str(message["message"]).partition("\n")[0]
    if failure.exitcode < 0:
        return str(failure.message)
    return f"ended with {failure.exitcode}; see its log above"


def unmet(error: RendezvousError | DistError, gang: Gang, *, seconds: int) -> WorkloadError:
    """Return why the workers of a gang did not meet, after this many seconds where they waited.

    One that ends between meeting and being counted is an error of the store where the others wait
    for its word.
    """
    # torch says what happened in the inner error, or nowhere.
    said = str(error.__cause__ or error).partition("\n")[0]
    if "EADDRINUSE" in said:
        return BadArgument(
            f"port {gang.port}, where worker 0 awaits the others, is in use: end what listens"
            " there, or have the gang meet at another port, by GPUPACK_RENDEZVOUS=HOST:PORT"
        )
    if isinstance(error, RendezvousTimeoutError):
        said = f"after {seconds} s they were not all there"
    return PeersMissing(
        f"{gang.workers} workers did not meet at {gang.endpoint}: {said or 'one of them has ended'}"
    )


def filter_expected_exits() -> None:
    """Stop torch from logging its own stack if a process ended with a status by itself."""
    logging.getLogger(TORCHS_LOG).addFilter(is_unexpected)


def is_unexpected(record: logging.LogRecord) -> bool:
    """Return whether a record is of something else than a process that left with a status."""
    error = record.exc_info[1] if record.exc_info else None
    return not (isinstance(error, ProcessExitedException) and error.exit_code > 0)
