# SPDX-License-Identifier: Apache-2.0
"""Starts the processes of this worker and waits for them.

The start is torchrun's own machinery, called as a library because that way a process's result and
exit status come back. All meet at worker 0's stable name (c10d rendezvous); `is_host` says which
worker serves it, because torch's guess from host names is wrong for a pod's names.
"""

import logging
import os
import tempfile
from collections.abc import Callable

import torch
from torch.distributed import DistError
from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousError
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from gpupack_workloads.distributed import peers
from gpupack_workloads.distributed.failure import (
    filter_expected_exits,
    unmet,
    why,
)
from gpupack_workloads.distributed.interface import keep_gloo_off_loopback
from gpupack_workloads.distributed.rank import AnyOptions, run_rank
from gpupack_workloads.distributed.rendezvous import WaitPolicy, own_address, wait_for_name
from gpupack_workloads.errors import termination_error
from gpupack_workloads.results import Result
from gpupack_workloads.settings import Gang
from gpupack_workloads.signals import EndRequested, raise_on_signals

logger = logging.getLogger(__name__)

JOIN_SECONDS = 300
FOLDER = "gpupack-gang-"
STORE_OF_EACH_ROUND = ("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
"""A store that outlives a round has the addresses of earlier ranks."""
RESIZES = 1_000_000
"""Processes end whenever a worker joins or leaves, and are restarted as often."""
ELASTIC = {"last_call_timeout": 3, "keep_alive_interval": 1, "keep_alive_max_attempt": 3}
"""Seconds that the minimum of workers waits for the others; seconds between heartbeats, and the
number of heartbeats that may be missed."""


def launch(measure: Callable[[AnyOptions, str], Result], options: AnyOptions, gang: Gang) -> Result:
    """Run `measure(options, backend)` in this worker's processes; return what the first reports.

    Args:
        measure: a function of a module (it is pickled), which calls `rank.group` for its group.
        options: handed to it.
        gang: this worker's place; its backend is handed to `measure`.

    Raises:
        WorkloadError: of the kind and with the reason that the first failed process reported.
        PeersMissing: the other workers did not come.
        BadArgument: the port where they should meet is in use.
        Cancelled: SIGINT came.
        Terminated: another signal to end came.
    """
    raise_on_signals()
    local = gang.processes or max(1, torch.cuda.device_count())
    filter_expected_exits()
    if gang.index == 0:
        os.environ[peers.SERVES_RENDEZVOUS] = "1"
    try:
        if gang.elastic:
            os.environ.setdefault(*STORE_OF_EACH_ROUND)
        meeting_point = wait_for_name(gang.host, WaitPolicy())
        address = own_address(meeting_point)
        keep_gloo_off_loopback(address)
        logger.info("worker %d of %d starts %d process(es)", gang.index, gang.workers, local)
        if gang.workers > 1:
            logger.info("and waits for the other workers, at most %d s", JOIN_SECONDS)
        with tempfile.TemporaryDirectory(prefix=FOLDER, ignore_cleanup_errors=True) as folder:
            set_unique_name(gang.index)
            config = launch_config(gang, local, address=address, folder=folder)
            results = elastic_launch(config, run_rank)(measure, options, gang.backend)
    except ChildFailedError as error:
        raise why(error) from error
    except (RendezvousError, DistError) as error:
        raise unmet(error, gang, seconds=JOIN_SECONDS) from error
    except (SignalException, EndRequested) as error:
        raise termination_error(error.sigval) from error
    result: Result = results[min(results)]
    return result


def set_unique_name(worker: int) -> None:
    """Give this worker a unique name at the rendezvous.

    torch names a worker by its address, its process id and a number that counts the rendezvous of
    a process. Workers that share a pod have one address, and each container has process ids of its
    own, so that all names were equal and the rendezvous waited for workers that had come.
    """
    DynamicRendezvousHandler._node_desc_generator._local_id = worker  # noqa: SLF001 - no other way


def launch_config(gang: Gang, local: int, *, address: str, folder: str) -> LaunchConfig:
    """Return torchrun's settings for this worker; processes leave why they end in the folder."""
    return LaunchConfig(
        min_nodes=gang.least or gang.workers,
        max_nodes=gang.workers,
        nproc_per_node=local,
        run_id=gang.run,
        rdzv_backend="c10d",
        rdzv_endpoint=gang.endpoint,
        rdzv_configs={
            "is_host": gang.index == 0,
            "join_timeout": JOIN_SECONDS,
            **(ELASTIC if gang.elastic else {}),
        },
        local_addr=address,
        logs_specs=DefaultLogsSpecs(log_dir=folder),
        max_restarts=RESIZES if gang.elastic else 0,
        monitor_interval=0.1,
        start_method="spawn",
    )
