# SPDX-License-Identifier: Apache-2.0
"""Variables with which torch's launchers and training scripts find the processes of a job.

    one worker                     PET_*
    several, one process in each   PET_*, MASTER_*, NODE_RANK, and RANK, LOCAL_RANK, WORLD_SIZE, …
    several, several in each       PET_*, MASTER_*, NODE_RANK; a launcher gives the ranks
    roles, several in some of them the same
    elastic                        PET_*; torchrun's rendezvous gives the ranks
    by mpirun                      MASTER_*; mpirun gives the ranks

Scripts read RANK or LOCAL_RANK to decide whether they are distributed, and then read the other
variables. So a process has all of them or none. It has none if it is the only one, if the number of
processes changes, or if a launcher starts the processes. torchrun, accelerate, deepspeed and
Lightning set them for each process that they start; Lightning starts none where LOCAL_RANK is set.
"""

from typing import Final

from gpupack_crds import names
from gpupack_crds.gpujob import Distributed, GpuJobSpec

MAX_RESTARTS: Final = 1_000_000
"""Limit for torchrun, which counts each worker that starts or ends as a restart."""


def processes(spec: GpuJobSpec) -> int:
    """Return the number of processes in each worker."""
    distributed = spec.distributed or Distributed()
    return distributed.processes_per_worker or spec.gpus or 1


def values(spec: GpuJobSpec, *, host: str, run: str) -> dict[str, str]:
    """Return the variables that are equal in all workers.

    Args:
        spec: the job's spec.
        host: worker 0's host name, where the processes meet.
        run: identifier of the attempt.
    """
    master = {"MASTER_ADDR": host, "MASTER_PORT": str(names.RENDEZVOUS_PORT)}
    if spec.by_mpirun:
        return master
    if spec.extra:
        return _for_torchrun(spec, host) | _for_elastic_torchrun(spec, host, run)
    if spec.workers == 1:
        return _for_torchrun(spec, host)
    return (
        _for_torchrun(spec, host)
        | master
        | (_process_variables(spec) if _is_single_process(spec) else {})
    )


def index_names(spec: GpuJobSpec) -> tuple[str, ...]:
    """Return the names of the variables whose value is the worker's index."""
    if spec.by_mpirun:
        return ()
    if spec.extra or spec.workers == 1:
        return ("PET_NODE_RANK",)
    node = ("PET_NODE_RANK", "NODE_RANK")
    return (*node, "GROUP_RANK", "RANK") if _is_single_process(spec) else node


def _is_single_process(spec: GpuJobSpec) -> bool:
    """Tell whether each worker, of whatever role, has one process: then its rank is its index."""
    if spec.roles:
        return all(processes(spec.of_role(role)) == 1 for role in spec.roles)
    return processes(spec) == 1


def _for_torchrun(spec: GpuJobSpec, host: str) -> dict[str, str]:
    """Return defaults of torchrun's options; a worker is a node of torchrun."""
    return {
        "PET_NNODES": str(spec.workers),
        "PET_NPROC_PER_NODE": str(processes(spec)),
        "PET_MASTER_ADDR": host,
        "PET_MASTER_PORT": str(names.RENDEZVOUS_PORT),
    }


def _for_elastic_torchrun(spec: GpuJobSpec, host: str, run: str) -> dict[str, str]:
    """Return the settings that let workers start and end.

    They meet by torchrun's c10d rendezvous.
    """
    return {
        "PET_NNODES": f"{spec.least}:{spec.workers}",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"{host}:{names.RENDEZVOUS_PORT}",
        "PET_RDZV_ID": run,
        "PET_MAX_RESTARTS": str(MAX_RESTARTS),
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }


def _process_variables(spec: GpuJobSpec) -> dict[str, str]:
    """Return what torchrun would set for the one process of each worker, except its index."""
    workers = str(spec.workers)
    return {
        "WORLD_SIZE": workers,
        "GROUP_WORLD_SIZE": workers,
        "LOCAL_WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
    }
