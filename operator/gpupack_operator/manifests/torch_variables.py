# SPDX-License-Identifier: Apache-2.0
"""The variables by which torch's launchers and training scripts find the processes of a job.

    one worker                     PET_*
    several, one process in each   PET_*, MASTER_*, NODE_RANK, and RANK, LOCAL_RANK, WORLD_SIZE, …
    several, several in each       PET_*, MASTER_*, NODE_RANK; a launcher gives the ranks
    elastic                        PET_*; torchrun's rendezvous gives the ranks
    by mpirun                      MASTER_*; mpirun gives the ranks

Scripts decide by RANK or by LOCAL_RANK whether they are distributed, and read the others then. So a
process has all of them or none: none where it is alone, where the number of processes changes, and
where a launcher starts them. torchrun, accelerate, deepspeed and Lightning set them for each
process that they start; Lightning starts none where LOCAL_RANK is set.
"""

from typing import Final

from gpupack_crds import names
from gpupack_crds.gpujob import Distributed, GpuJobSpec

MAX_RESTARTS: Final = 1_000_000
"""torchrun counts each worker that comes or goes as a restart."""


def processes(spec: GpuJobSpec) -> int:
    """Return the number of processes in each worker."""
    distributed = spec.distributed or Distributed()
    return distributed.processes_per_worker or spec.gpus or 1


def values(spec: GpuJobSpec, *, host: str, run: str) -> dict[str, str]:
    """Return the variables that all workers have in common.

    Args:
        spec: the job's.
        host: where the processes meet: worker 0's name.
        run: identifies the attempt.
    """
    master = {"MASTER_ADDR": host, "MASTER_PORT": str(names.RENDEZVOUS_PORT)}
    if spec.by_mpirun:
        return master
    if spec.extra:
        return _for_torchrun(spec, host) | _for_elastic_torchrun(spec, host, run)
    if spec.workers == 1:
        return _for_torchrun(spec, host)
    return _for_torchrun(spec, host) | master | (_of_a_process(spec) if _is_a_rank(spec) else {})


def index_names(spec: GpuJobSpec) -> tuple[str, ...]:
    """Return the variables whose value is the worker's index."""
    if spec.by_mpirun:
        return ()
    if spec.extra or spec.workers == 1:
        return ("PET_NODE_RANK",)
    node = ("PET_NODE_RANK", "NODE_RANK")
    return (*node, "GROUP_RANK", "RANK") if _is_a_rank(spec) else node


def _is_a_rank(spec: GpuJobSpec) -> bool:
    return processes(spec) == 1


def _for_torchrun(spec: GpuJobSpec, host: str) -> dict[str, str]:
    """Return what torchrun takes where its command line is silent; a worker is its node."""
    return {
        "PET_NNODES": str(spec.workers),
        "PET_NPROC_PER_NODE": str(processes(spec)),
        "PET_MASTER_ADDR": host,
        "PET_MASTER_PORT": str(names.RENDEZVOUS_PORT),
    }


def _for_elastic_torchrun(spec: GpuJobSpec, host: str, run: str) -> dict[str, str]:
    """Return what lets workers come and go: they meet by torchrun's c10d rendezvous."""
    return {
        "PET_NNODES": f"{spec.least}:{spec.workers}",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"{host}:{names.RENDEZVOUS_PORT}",
        "PET_RDZV_ID": run,
        "PET_MAX_RESTARTS": str(MAX_RESTARTS),
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }


def _of_a_process(spec: GpuJobSpec) -> dict[str, str]:
    """Return what torchrun would set for the one process of each worker, but for its index."""
    workers = str(spec.workers)
    return {
        "WORLD_SIZE": workers,
        "GROUP_WORLD_SIZE": workers,
        "LOCAL_WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
    }
