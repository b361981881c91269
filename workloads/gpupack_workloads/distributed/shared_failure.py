# SPDX-License-Identifier: Apache-2.0
"""Ends every rank with the status of a rank that failed, before the next collective."""

import contextlib
from collections.abc import Iterator

import torch
import torch.distributed as dist

from gpupack_workloads.errors import WorkloadError, error_of_status


@contextlib.contextmanager
def all_or_none() -> Iterator[None]:
    """Raise on every rank if one rank raises within the context.

    Without it the ranks of other workers would wait for the failed one until the group's time-out,
    and end with an unrelated error. Within the context no rank may wait for another, because the
    failed one would not come.

    Raises:
        WorkloadError: this rank's own, or of the kind of the highest status among the others'.
    """
    failed: WorkloadError | None = None
    try:
        yield
    except WorkloadError as error:
        failed = error
    device = torch.cuda.current_device() if dist.get_backend() == "nccl" else "cpu"
    status = torch.tensor(failed.exit_status if failed else 0, device=device)
    dist.all_reduce(status, op=dist.ReduceOp.MAX)
    if failed is not None:
        raise failed
    if status_of_failure := int(status.item()):
        raise error_of_status(status_of_failure, "another process of the gang failed; see its log")
