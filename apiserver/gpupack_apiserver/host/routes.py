# SPDX-License-Identifier: Apache-2.0
"""Calls that one machine answers in its own way: holders of its GPUs, and reservations.

A reservation is of whole GPUs. Where they are not free in time nothing is held, and no wait
continues afterwards: the queue of a machine contains only the calls that wait.
"""

import datetime as dt
from collections.abc import Iterator
from typing import Final

from litestar import delete, get, post
from litestar.datastructures import State

from gpupack.errors import ConfigInvalid, NotEnoughGpus, NothingHeld
from gpupack.host.backend import environment_of
from gpupack.host.record import Record, placement_of, uptime_seconds
from gpupack.training_config import TrainingGPUConfig
from gpupack_apiserver import problems
from gpupack_apiserver.errors import CallInvalid, no_allocation
from gpupack_apiserver.holders import EXCLUSIVE
from gpupack_apiserver.host.parts import NAMESPACE, HostParts, host_parts_of
from gpupack_apiserver.patterns import HOLDER_CURSOR, require_cursor
from gpupack_apiserver.routes.allocations import (
    ONE_ALLOCATION,
    WAIT_SECONDS,
    AllocateBody,
    IdempotencyKey,
    allocation_name,
)
from gpupack_apiserver.routes.holders import After, Limit
from gpupack_apiserver.routes.jobs import Namespace, OneName, OneNamespace
from gpupack_apiserver.routes.parts import Call
from gpupack_restapi import PREFIX
from gpupack_restapi.allocations import Allocation, GpuConfig, WorkerConfig
from gpupack_restapi.holders import Holders, HolderView
from gpupack_scheduler.ledger import claims

RUNNING: Final = "Running"
FAILED: Final = "Failed"
"""Phases of the cluster's GPUJobs."""


@post(f"{PREFIX}/allocate", tags=["allocations"], status_code=201, responses=problems.WRITES)
async def allocate(
    request: Call, state: State, data: AllocateBody, key: IdempotencyKey = ""
) -> Allocation:
    """Hold GPUs until they are released or their time has passed, also if this server ends.

    The call waits some seconds for them. Where they are not free by then, the answer has `success`
    false, and nothing is held.
    """
    parts = host_parts_of(state)
    await parts.require_viewer(request)
    if data.namespace not in {"", NAMESPACE}:
        raise CallInvalid("namespace", data.namespace, f"leave it empty, or give {NAMESPACE}")
    name = allocation_name(key)
    try:
        config = TrainingGPUConfig(data.gpu_count, data.gpu_type.strip(), data.memory_gb)
        record = await parts.allocations.make(
            name, config, wait_seconds=WAIT_SECONDS, hold_seconds=data.seconds
        )
    except ConfigInvalid as error:
        raise CallInvalid("gpu_type", data.gpu_type, str(error)) from error
    except NotEnoughGpus as error:
        return _not_held(name, str(error))
    return _view(parts, name, record)


@get(
    ONE_ALLOCATION,
    tags=["allocations"],
    responses=problems.REFUSALS | problems.MISSING,
)
async def allocation(
    request: Call, state: State, namespace: OneNamespace, name: OneName
) -> Allocation:
    """Show an allocation."""
    parts = host_parts_of(state)
    await parts.require_viewer(request)
    return _view(parts, name, parts.find_reservation(namespace, name))


@delete(
    ONE_ALLOCATION,
    tags=["allocations"],
    responses=problems.WRITES | problems.MISSING,
)
async def release(request: Call, state: State, namespace: OneNamespace, name: OneName) -> None:
    """Release the GPUs of an allocation."""
    parts = host_parts_of(state)
    await parts.require_viewer(request)
    parts.find_reservation(namespace, name)
    try:
        await parts.allocations.cancel(name)
    except NothingHeld as error:
        raise no_allocation(namespace, name) from error


@get(f"{PREFIX}/holders", tags=["jobs"], responses=problems.REFUSALS)
async def holders(
    request: Call, state: State, namespace: Namespace = "", limit: Limit = 500, after: After = ""
) -> Holders:
    """List processes and reservations with the GPUs that they hold.

    `namespace` is `user-UID`, `pod` the process or `reservation NAME`. A process that computes on a
    GPU without a holder is listed, too, without a namespace.
    """
    require_cursor(after, HOLDER_CURSOR)
    parts = host_parts_of(state)
    await parts.require_viewer(request)
    known = sorted(_holders(parts), key=_cursor)
    found = [each for each in known if _cursor(each) > after and namespace in {"", each.namespace}]
    shown = found[:limit]
    return Holders(tuple(shown), _cursor(shown[-1]) if len(found) > limit else "")


def _holders(parts: HostParts) -> Iterator[HolderView]:
    snapshot, indices = parts.model.snapshot, parts.indices()
    for name, record in snapshot.records.items():
        for share in claims.shares(placement_of(record, snapshot.node)):
            yield HolderView(
                namespace=f"user-{record.user}",
                pod=_holder(name, record),
                job="",
                worker=None,
                node=str(snapshot.node),
                uuid=share.uuid,
                index=next((at for uuid, at in indices.items() if uuid == share.uuid), None),
                percent=share.percent,
                memory_mib=share.memory_mib,
                isolation=EXCLUSIVE if share.whole else share.isolation,
            )
    for device in snapshot.used_without_holder():
        pids = ", ".join(map(str, sorted(snapshot.inventory.users[device.uuid])))
        yield HolderView(
            namespace="",
            pod=f"process {pids}, without an allocation",
            job="",
            worker=None,
            node=str(snapshot.node),
            uuid=str(device.uuid),
            index=device.index,
            percent=100,
            memory_mib=device.memory,
            isolation=EXCLUSIVE,
        )


def _holder(name: str, record: Record) -> str:
    if record.reserved_until is not None:
        return f"reservation {name.partition('-')[2]}"
    return f"process {record.process.pid} ({record.command})"


def _cursor(holder: HolderView) -> str:
    return f"{holder.namespace}/{holder.pod}/{holder.uuid}"


def _not_held(name: str, why: str) -> Allocation:
    nothing = GpuConfig(gpu_count=0, workers=(), environment={})
    return Allocation(
        success=False,
        allocation_id=f"{NAMESPACE}/{name}",
        node_name="",
        gpu_config=nothing,
        phase=FAILED,
        message=why,
    )


def _view(parts: HostParts, name: str, record: Record) -> Allocation:
    snapshot, indices = parts.model.snapshot, parts.indices()
    placement = placement_of(record, snapshot.node)
    uuids = [each.uuid for each in placement.devices]
    worker = WorkerConfig(
        str(snapshot.node),
        tuple(indices[uuid] for uuid in uuids if uuid in indices),
        tuple(map(str, uuids)),
    )
    left = (record.reserved_until or 0) - uptime_seconds()
    return Allocation(
        success=True,
        allocation_id=f"{NAMESPACE}/{name}",
        node_name=worker.node_name,
        gpu_config=GpuConfig(
            gpu_count=len(uuids),
            workers=(worker,),
            environment=environment_of(placement, simulated=snapshot.inventory.simulated),
        ),
        phase=RUNNING,
        expires=dt.datetime.now(dt.UTC) + dt.timedelta(seconds=left),
    )
