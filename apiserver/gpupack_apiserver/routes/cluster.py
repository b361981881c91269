# SPDX-License-Identifier: Apache-2.0
"""Calls about the whole cluster, without any tenant's name."""

import datetime as dt
from typing import Annotated, Final

from litestar import get
from litestar.datastructures import State
from litestar.params import QueryParameter

from gpupack_apiserver import problems
from gpupack_apiserver.errors import CallInvalid
from gpupack_apiserver.node_views import Totals
from gpupack_apiserver.patterns import DOTTED_NAME, require_cursor
from gpupack_apiserver.routes.parts import Call, shared_parts_of
from gpupack_placement import Invalid, matches_model, require_model
from gpupack_restapi import PREFIX
from gpupack_restapi.nodes import (
    AvailableNode,
    Health,
    Monitoring,
    Nodes,
    NodeView,
    Status,
    Utilization,
)
from gpupack_restapi.patterns import MODEL

MAX_LISTED: Final = 5000


GpuType = Annotated[
    str,
    QueryParameter(
        description="GPU model, such as V100 or A100-80GB.", max_length=64, pattern=MODEL
    ),
]
MinMemory = Annotated[
    float, QueryParameter(description="Minimum GB (10^9 bytes) of a GPU.", ge=0, le=100_000)
]
Limit = Annotated[int, QueryParameter(description="Maximum entries.", ge=1, le=MAX_LISTED)]
After = Annotated[
    str,
    QueryParameter(description="`next` of the previous page.", max_length=253),
]


@get(f"{PREFIX}/status", tags=["cluster"], responses=problems.REFUSALS)
async def status(request: Call, state: State) -> Status:
    """Return free and allocated GPUs.

    `available_nodes` lists the ready nodes with a GPU that is free as a whole.
    """
    parts = shared_parts_of(state)
    await parts.require_viewer(request)
    totals: Totals = parts.nodes.totals()
    known = parts.nodes.all()
    available = tuple(
        AvailableNode(
            each.node_name,
            each.gpu_type,
            each.available_gpus,
            each.memory_per_gpu,
            each.utilization,
        )
        for each in known
        if each.available_gpus and each.ready
    )
    return Status(
        utilization=Utilization(totals.gpu_utilization, totals.gpu_memory_usage),
        available_nodes=available,
        total_nodes=totals.nodes,
        total_gpus=totals.gpus,
        available_gpus=totals.available_gpus,
        timestamp=dt.datetime.now(dt.UTC),
        simulated=any(each.simulated for each in known),
    )


@get(f"{PREFIX}/nodes", tags=["cluster"], responses=problems.REFUSALS)
async def nodes(
    request: Call,
    state: State,
    gpu_type: GpuType = "",
    min_memory_gb: MinMemory = 0.0,
    limit: Limit = 500,
    after: After = "",
) -> Nodes:
    """List nodes with their GPUs."""
    require_cursor(after, DOTTED_NAME)
    parts = shared_parts_of(state)
    await parts.require_viewer(request)
    _require_model(gpu_type)
    found = tuple(
        each
        for each in parts.nodes.all()
        if each.node_name > after and _has(each, gpu_type, min_memory_gb)
    )
    shown = found[:limit]
    return Nodes(shown, next=shown[-1].node_name if len(found) > limit else "")


@get(f"{PREFIX}/monitoring", tags=["cluster"], responses=problems.REFUSALS)
async def monitoring(request: Call, state: State) -> Monitoring:
    """Return the present figures, and those of the last hour as this process recorded them."""
    parts = shared_parts_of(state)
    await parts.require_viewer(request)
    samples = tuple(parts.history.samples)
    return Monitoring(samples[-1] if samples else None, samples, parts.history.seconds)


@get(f"{PREFIX}/health", tags=["health"], security=[{}], responses=problems.WRONG)
async def health(state: State) -> Health:
    """Return whether the cluster's state is known; needs no token."""
    missing = shared_parts_of(state).model.missing()
    return Health("stale" if missing else "ok", missing)


@get(
    f"{PREFIX}/health/ready",
    tags=["health"],
    security=[{}],
    responses=problems.STALE | problems.WRONG,
)
async def ready(state: State) -> Health:
    """Return 200 where the cluster's state is known, else 503."""
    shared_parts_of(state).model.require_fresh()
    return Health("ok")


def _require_model(gpu_type: str) -> None:
    if not gpu_type:
        return
    try:
        require_model(gpu_type)
    except Invalid as error:
        raise CallInvalid("gpu_type", gpu_type, f"name a model such as V100 ({error})") from error


def _has(node: NodeView, gpu_type: str, memory_gb: float) -> bool:
    return any(
        each.memory_gb >= memory_gb and (not gpu_type or matches_model(gpu_type, each.gpu_type))
        for each in node.devices
    )
