# SPDX-License-Identifier: Apache-2.0
"""Environment of each process of a gang: log, device, group, exit status.

A rank that fails leaves its reason first and then ends without destroying the group, which would
wait for what the others have begun (see peers.py).
"""

import contextlib
import logging
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import msgspec
import torch.distributed as dist

from gpupack_kernels.errors import Unsupported
from gpupack_workloads.devices import Device, choose_device
from gpupack_workloads.distributed import peers, probe
from gpupack_workloads.distributed.failure import write_reason
from gpupack_workloads.distributed.transports import Log, logged
from gpupack_workloads.errors import (
    BadArgument,
    Interrupted,
    NoSuchDevice,
    Terminated,
    WorkloadError,
)
from gpupack_workloads.profile.recorded_run import recorded_rank
from gpupack_workloads.results import Result
from gpupack_workloads.settings import Options

logger = logging.getLogger(__name__)

AnyOptions = TypeVar("AnyOptions", bound=Options)

# A lost peer should end the job, not hold its GPUs for torch's ten minutes.
TIMEOUT = timedelta(minutes=3)


@dataclass(frozen=True)
class Rank:
    """This process's place in its group.

    Attributes:
        index: which of all processes of the gang, from 0.
        ranks: how many there are.
        local_index: which of this worker's processes, and so which of its GPUs.
        device: its device.
        backend: nccl or gloo.
    """

    index: int
    ranks: int
    local_index: int
    device: Device
    backend: str


def run_rank(
    measure: Callable[[AnyOptions, str], Result], options: AnyOptions, backend: str
) -> Result:
    """Do this process's part; report an error to the launcher by exit status and text."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
    )
    try:
        require_launcher()
        result = recorded_rank(measure)(options, backend)
        return msgspec.structs.replace(result, communication=probe.measured.get())
    except (WorkloadError, Unsupported) as error:
        reported = error if isinstance(error, WorkloadError) else BadArgument(str(error))
        logger.error("%s: %s", type(reported).__name__, reported)  # noqa: TRY400  expected: no traceback
        write_reason(reported)
        peers.end_process(reported.exit_status)
    except Exception as error:
        logger.exception("not expected")
        write_reason(error)
        peers.end_process(WorkloadError.exit_status)


def require_launcher() -> None:
    """Check that the process that started this one still runs.

    torch has the kernel signal a launcher's end, but not one before torch is imported here.
    Without it such a process would wait for its gang, and hold its GPU, until TIMEOUT.

    Raises:
        Terminated: it does not.
    """
    launcher = multiprocessing.parent_process()
    if launcher is not None and not launcher.is_alive():
        raise Terminated("the launcher of this process has ended")


@contextlib.contextmanager
def group(backend: str, *, require_gpu: bool) -> Iterator[Rank]:
    """Join the gang's group for as long as the context lasts.

    Raises:
        NoSuchDevice: this process has no GPU and needs one.
        PeersMissing: a process of the gang was killed in the midst of a collective of gloo's.
        WorkloadError: a process has failed; the error has its kind.
    """
    local_index = int(os.environ["LOCAL_RANK"])
    device = choose_device(require_gpu=require_gpu, index=local_index)
    backend = choose_backend(backend, device)
    with logged(backend) as log:
        dist.init_process_group(
            backend, timeout=TIMEOUT, device_id=None if device.simulated else device.torch
        )
        yield from _joined(local_index, device, backend, log)


def _joined(local_index: int, device: Device, backend: str, log: Log | None) -> Iterator[Rank]:
    """Yield this process's place, until its work is done."""
    rank = Rank(
        index=dist.get_rank(),
        ranks=dist.get_world_size(),
        local_index=local_index,
        device=device,
        backend=backend,
    )
    try:
        if rank.ranks == 1:
            yield rank
        else:
            with peers.watched(os.environ):
                probe.measured.set(probe.communication(rank, log))
                yield rank
    except BaseException as error:
        if rank.ranks == 1 or isinstance(error, Interrupted):
            # No rank waits: all leave with Interrupted at once.
            dist.destroy_process_group()
            raise
        lost = peers.loss(error, os.environ)
        peers.report_failure(lost or error, rank=rank.index, environ=os.environ)
        if lost is not None:
            peers.wait_for_launcher(lost, os.environ)
            raise lost from error
        raise
    dist.destroy_process_group()


def choose_backend(wanted: str, device: Device) -> str:
    """Return NCCL for GPUs and gloo for CPUs, unless the job names one."""
    if wanted == "auto":
        return "gloo" if device.simulated else "nccl"
    if wanted == "nccl" and device.simulated:
        raise NoSuchDevice("backend nccl needs GPUs; use auto or gloo where there are none")
    return wanted
