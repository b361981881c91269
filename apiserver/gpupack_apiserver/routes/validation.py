# SPDX-License-Identifier: Apache-2.0
"""Whether the cluster could serve a training, and whether it fits now.

It uses the code that places jobs, for GPUs only: CPU, memory, quotas and waiting jobs are ignored,
since the call does not name them.
"""

from typing import Annotated

from litestar import post
from litestar.datastructures import State
from litestar.params import Body

from gpupack.training_config import BYTES_PER_GB, BYTES_PER_MIB
from gpupack_apiserver import problems
from gpupack_apiserver.errors import CallInvalid
from gpupack_apiserver.routes.parts import Call, shared_parts_of
from gpupack_crds.gpujob import MAX_WORKERS
from gpupack_placement import Cluster, Gang, Invalid, MiB, Refusal, Request, require_model
from gpupack_restapi import PREFIX
from gpupack_restapi.allocations import Training, Validation

TrainingBody = Annotated[Training, Body(schema_extra={"additionalProperties": False})]


@post(f"{PREFIX}/validate", tags=["jobs"], status_code=200, responses=problems.REFUSALS)
async def validate(request: Call, state: State, data: TrainingBody) -> Validation:
    """Return whether the cluster can serve a training, and where it would run now."""
    parts = shared_parts_of(state)
    user = await parts.require_viewer(request)
    gang = gang_of(data, parts.model.cluster)
    found = await parts.plan(user, gang)
    refusal = found if isinstance(found, Refusal) else None
    places = () if isinstance(found, Refusal) else found
    return Validation(
        valid=refusal is None or not refusal.never,
        fits_now=refusal is None,
        workers=gang.workers,
        gpus_per_worker=gang.roles[0].request.gpus or 0,
        nodes=tuple(str(placement.node) for placement in places),
        message=refusal.message if refusal else "",
    )


def gang_of(training: Training, cluster: Cluster) -> Gang:
    """Return a gang with as few workers as the largest node allows, all equal."""
    max_gpus = max((len(node.devices) for node in cluster.nodes()), default=0) or 1
    per_worker = training.gpu_count
    if training.distributed_training:
        sizes = range(min(max_gpus, training.gpu_count), 0, -1)
        per_worker = next(size for size in sizes if training.gpu_count % size == 0)
    memory = -(-int(training.memory_gb * BYTES_PER_GB) // BYTES_PER_MIB)
    models = (training.gpu_type,) if training.gpu_type.strip() else ()
    try:
        for model in models:
            require_model(model)
        request = Request(gpus=per_worker, models=models, min_memory=MiB(memory))
    except Invalid as error:
        raise CallInvalid(
            "gpu_type", training.gpu_type, f"name a model such as V100 ({error})"
        ) from error
    workers = training.gpu_count // per_worker
    if workers > MAX_WORKERS:
        fix = f"use a number that at most {MAX_WORKERS} equal workers can have: not {workers}"
        raise CallInvalid("gpu_count", training.gpu_count, fix)
    return Gang.of(request=request, workers=workers)
