# SPDX-License-Identifier: Apache-2.0
"""Environment of the worker container: what a job needs to know about itself."""

from gpupack_crds import names
from gpupack_crds.gpujob import Backend, Distributed, GpuJobSpec, Role
from gpupack_crds.kinds import GpuJob
from gpupack_crds.vendors import Vendors
from gpupack_kubeclient.objects import Json
from gpupack_operator.manifests import torch_variables
from gpupack_operator.manifests.mpi import KEY_PATH
from gpupack_operator.manifests.torch_variables import processes

RESULT_PATH = "/dev/termination-log"
INDEX = "GPUPACK_WORKER_INDEX"
ROLE = "GPUPACK_ROLE"
ROLE_INDEX = "GPUPACK_ROLE_INDEX"

NO_VENDORS = Vendors()

LOOPBACK = "127.0.0.1"
"""Host of a job's only worker, which has no name and need not wait for a name service."""

MULTICAST_OFF = {
    "NCCL_NVLS_ENABLE": "0",
    "NVSHMEM_DISABLE_NVLS": "1",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
}
"""Settings of NCCL, NVSHMEM and torch on shared hosts.

There, a process that is killed can leave NVSwitch's multicast in a state that only a reset of the
host's GPUs repairs.
"""
MULTICAST_ON = {
    "NCCL_NVLS_ENABLE": "1",
    "NVSHMEM_DISABLE_NVLS": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "0",
}


def variables(
    job: GpuJob,
    *,
    attempt: int,
    multicast: bool = False,
    vendors: Vendors = NO_VENDORS,
    role: Role | None = None,
) -> list[Json]:
    """Return the variables of one attempt; only the index differs between workers of a role.

    Args:
        job: the GPUJob; with a role, as `GpuJobSpec.of_role` makes it.
        attempt: the attempt's number.
        multicast: whether libraries may use NVLink multicast.
        vendors: the chart's table.
        role: the role of the workers; None: the job has no roles.
    """
    values = _job_variables(job, attempt=attempt)
    values |= torch_variables.values(
        job.spec,
        host=rendezvous_host(job, attempt=attempt),
        run=names.job_name(job.metadata.name, attempt=attempt),
    )
    values |= _mpirun_variables(job, attempt=attempt) if job.spec.by_mpirun else {}
    values |= MULTICAST_ON if multicast else MULTICAST_OFF
    values |= _vendor_variables(job.spec.resource_name, vendors)
    values |= _role_variables(job, role, attempt=attempt) if role else {}
    return [{"name": name, "value": value} for name, value in values.items()] + [
        _index(name) for name in (INDEX, *torch_variables.index_names(job.spec))
    ]


def rendezvous_host(job: GpuJob, *, attempt: int) -> str:
    """Return the host at which the workers meet: worker 0 of this attempt."""
    return worker_host(job, "0", attempt=attempt)


def worker_host(job: GpuJob, index: str, *, attempt: int) -> str:
    """Return the host name of a worker."""
    if job.spec.workers == 1:
        return LOOPBACK
    worker = f"{names.job_name(job.metadata.name, attempt=attempt)}-{index}"
    return f"{worker}.{job.metadata.name}.{job.metadata.namespace}.svc"


def _job_variables(job: GpuJob, *, attempt: int) -> dict[str, str]:
    return {
        "GPUPACK_JOB": job.metadata.name,
        "GPUPACK_NAMESPACE": job.metadata.namespace,
        "GPUPACK_ATTEMPT": str(attempt),
        "GPUPACK_WORKERS": str(job.spec.workers),
        **({"GPUPACK_MIN_WORKERS": str(job.spec.least)} if job.spec.extra else {}),
        "GPUPACK_GPUS": str(job.spec.gpus or 1),
        "GPUPACK_RENDEZVOUS": f"{rendezvous_host(job, attempt=attempt)}:{names.RENDEZVOUS_PORT}",
        "GPUPACK_PROCESSES_PER_WORKER": str(processes(job.spec)),
        "GPUPACK_BACKEND": _backend(job.spec, job.spec.distributed or Distributed()),
        "GPUPACK_RESULT_PATH": RESULT_PATH,
    }


def _role_variables(job: GpuJob, role: Role, *, attempt: int) -> dict[str, str]:
    """Return the worker's role, and how to find the workers of each role.

    The text {} represents an index, since there may be a thousand workers. A worker's index in its
    role is added where the worker is known (`job.worker_job`).
    """
    return {
        ROLE: role.name,
        "GPUPACK_ROLE_WORKERS": str(role.workers),
        "GPUPACK_ROLES": ",".join(
            f"{each.name}={indices.start}-{indices.stop - 1}"
            for each, indices in job.spec.role_indices
        ),
        "GPUPACK_HOSTS": worker_host(job, "{}", attempt=attempt),
    }


def _vendor_variables(resource: str, vendors: Vendors) -> dict[str, str]:
    """Return the vendor's name, and the variable by which a process selects GPUs of its worker.

    Only GPUs that another device plugin hands out have them: that plugin sets what its
    containers need, and the GPUs are not known in advance.
    """
    vendor = vendors.of(resource)
    if vendor is None:
        return {}
    found = {
        "GPUPACK_VENDOR": vendors.name_of(resource),
        "GPUPACK_VISIBLE_DEVICES_VARIABLE": vendor.visible_devices,
    }
    return {name: value for name, value in found.items() if value}


def _mpirun_variables(job: GpuJob, *, attempt: int) -> dict[str, str]:
    """Return the launcher's variables.

    The text {} represents an index, since there may be a thousand workers.
    """
    return {
        "GPUPACK_MPI_HOSTS": worker_host(job, "{}", attempt=attempt),
        "GPUPACK_MPI_KEY_FILE": KEY_PATH,
    }


def _backend(spec: GpuJobSpec, distributed: Distributed) -> Backend:
    """Return the backend.

    NCCL refuses two ranks on one GPU, which several shares or slices may have. All roles have one
    backend.
    """
    shares = spec.share or spec.mig or any(role.share for role in spec.roles)
    if shares and distributed.backend == "auto":
        return "gloo"
    return distributed.backend


def _index(name: str) -> Json:
    path = f"metadata.labels['{names.INDEX_LABEL}']"
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
