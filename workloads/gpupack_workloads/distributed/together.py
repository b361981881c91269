# SPDX-License-Identifier: Apache-2.0
"""An error of one rank, before all meet again in a collective, ends every rank with its status."""

import contextlib
from collections.abc import Iterator

import torch
import torch.distributed as dist

from gpupack_workloads.errors import WorkloadError, error_of_status


@contextlib.contextmanager
def all_or_none() -> Iterator[None]:
    """Leave the context all or none.

    Without it the ranks of other workers would wait for the one that failed until the group's
    time-out, and end with an error that says nothing. Within the context no rank may wait for
    another: the one that failed would not come.

    Raises:
        WorkloadError: this rank's own, or of the kind of the gravest among the others'.
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
    if gravest := int(status.item()):
        raise error_of_status(gravest, "another process of the gang failed; see its log")
