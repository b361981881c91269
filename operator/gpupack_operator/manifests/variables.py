# SPDX-License-Identifier: Apache-2.0
"""The environment of the worker container: what a job needs to know about itself."""

from gpupack_crds import names
from gpupack_crds.gpujob import Backend, Distributed, GpuJobSpec
from gpupack_crds.kinds import GpuJob
from gpupack_kube.objects import Json

RESULT_PATH = "/dev/termination-log"


def variables(job: GpuJob, *, attempt: int) -> list[Json]:
    """Variables of one attempt; the index alone differs between workers."""
    distributed = job.spec.distributed or Distributed()
    gpus = job.spec.gpus or 1
    values = {
        "GPUPACK_JOB": job.metadata.name,
        "GPUPACK_NAMESPACE": job.metadata.namespace,
        "GPUPACK_ATTEMPT": str(attempt),
        "GPUPACK_WORKERS": str(job.spec.workers),
        "GPUPACK_GPUS": str(gpus),
        "GPUPACK_RENDEZVOUS": rendezvous(job, attempt=attempt),
        "GPUPACK_PROCESSES_PER_WORKER": str(distributed.processes_per_worker or gpus),
        "GPUPACK_BACKEND": _backend(job.spec, distributed),
        "GPUPACK_RESULT_PATH": RESULT_PATH,
    }
    return [{"name": name, "value": value} for name, value in values.items()] + [_index()]


def rendezvous(job: GpuJob, *, attempt: int) -> str:
    """Host and port at which the workers meet: worker 0 of this attempt."""
    host = f"{names.job_name(job.metadata.name, attempt=attempt)}-0"
    return f"{host}.{job.metadata.name}.{job.metadata.namespace}.svc:{names.RENDEZVOUS_PORT}"


def _backend(spec: GpuJobSpec, distributed: Distributed) -> Backend:
    """NCCL refuses two ranks on one GPU, and several shares may be on one."""
    if spec.share and distributed.backend == "auto":
        return "gloo"
    return distributed.backend


def _index() -> Json:
    path = f"metadata.labels['{names.INDEX_LABEL}']"
    return {"name": "GPUPACK_WORKER_INDEX", "valueFrom": {"fieldRef": {"fieldPath": path}}}
