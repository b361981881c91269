# SPDX-License-Identifier: Apache-2.0
"""Settings with which TensorFlow or PyTorch uses exactly the GPUs of a process."""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import msgspec
from litestar import post
from litestar.datastructures import State
from litestar.params import Body

from gpupack.process_setup import (
    PyTorchSettings,
    PyTorchSetup,
    SetupInvalid,
    TensorFlowSettings,
    TensorFlowSetup,
    Visible,
    pytorch_settings,
    tensorflow_settings,
)
from gpupack_apiserver import problems
from gpupack_apiserver.errors import CallInvalid
from gpupack_apiserver.patterns import KEY
from gpupack_apiserver.placed_process import PlacedProcess, visible_device
from gpupack_apiserver.routes.parts import Call, SharedParts, WorkerRef, shared_parts_of
from gpupack_crds.gpujob import MAX_WORKERS
from gpupack_restapi import PREFIX

Key = Annotated[str, msgspec.Meta(pattern=KEY, max_length=317)]
"""NAMESPACE/NAME; empty: none."""

Worker = Annotated[int, msgspec.Meta(ge=0, lt=MAX_WORKERS)]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]


class TensorFlowRequest(TensorFlowSetup, frozen=True, forbid_unknown_fields=True):
    """A setup, for given devices or for those of an allocation or a GPUJob.

    Attributes:
        allocation: NAMESPACE/NAME, from the answer of `POST allocate`.
        job: NAMESPACE/NAME of a GPUJob.
        worker: index of the worker that the process is, or belongs to.
        port: port of the workers, where `workers` comes from the placement.
    """

    allocation: Key = ""
    job: Key = ""
    worker: Worker = 0
    port: Port = 12345


class PyTorchRequest(PyTorchSetup, frozen=True, forbid_unknown_fields=True):
    """A setup, for given devices or for those of an allocation or a GPUJob.

    Attributes:
        allocation: NAMESPACE/NAME, from the answer of `POST allocate`.
        job: NAMESPACE/NAME of a GPUJob.
        worker: index of the worker that the process belongs to. Rank, world size and the host of
            rank 0 come from the placement, where they are not given.
    """

    allocation: Key = ""
    job: Key = ""
    worker: Worker = 0


TensorFlowBody = Annotated[TensorFlowRequest, Body(schema_extra={"additionalProperties": False})]
PyTorchBody = Annotated[PyTorchRequest, Body(schema_extra={"additionalProperties": False})]


@post(
    f"{PREFIX}/setup-tensorflow",
    tags=["setup"],
    status_code=200,
    responses=problems.REFUSALS | problems.MISSING,
)
async def setup_tensorflow(request: Call, state: State, data: TensorFlowBody) -> TensorFlowSettings:
    """Return the settings and the environment with which TensorFlow uses a process's GPUs."""
    placed, visible = await _find_process(shared_parts_of(state), request, data)
    setup = data
    if placed is not None:
        workers, index = data.workers, data.task_index
        if data.strategy == "multi_worker" and not workers:
            workers, index = _addresses(placed.hosts, data.port), data.worker
        setup = msgspec.structs.replace(
            data, devices=_ids(visible), workers=workers, task_index=index
        )
    try:
        return tensorflow_settings(setup, visible)
    except SetupInvalid as error:
        raise _call_invalid(error) from error


@post(
    f"{PREFIX}/setup-pytorch",
    tags=["setup"],
    status_code=200,
    responses=problems.REFUSALS | problems.MISSING,
)
async def setup_pytorch(request: Call, state: State, data: PyTorchBody) -> PyTorchSettings:
    """Return the settings and the environment with which PyTorch uses a process's GPUs."""
    placed, visible = await _find_process(shared_parts_of(state), request, data)
    try:
        return pytorch_settings(
            data if placed is None else _fill_from_placement(data, placed), visible
        )
    except SetupInvalid as error:
        raise _call_invalid(error) from error


def _fill_from_placement(setup: PyTorchRequest, placed: PlacedProcess) -> PyTorchRequest:
    """Return a setup with values from the placement where they are not given."""
    rank = setup.rank or placed.ranks_before + (setup.local_rank or 0)
    local = setup.local_rank
    if local is None:
        local = max(rank - placed.ranks_before, 0) % len(placed.visible)
    alone = len(placed.hosts) == 1
    left = setup.master_addr == PyTorchSetup().master_addr and not alone
    return msgspec.structs.replace(
        setup,
        devices=_ids(placed.visible),
        world_size=setup.world_size or placed.ranks,
        rank=rank,
        local_rank=local,
        master_addr=placed.hosts[0] if left else setup.master_addr,
    )


async def _find_process(
    parts: SharedParts, request: Call, setup: TensorFlowRequest | PyTorchRequest
) -> tuple[PlacedProcess | None, tuple[Visible, ...]]:
    """Return the process's place in an allocation or job, if any, and its known GPUs."""
    if not _is_placed(setup):
        await parts.require_viewer(request)
        return None, _listed_devices(parts, setup.devices)
    try:
        placed = await parts.find_process(
            request, WorkerRef(setup.allocation, setup.job, setup.worker)
        )
    except SetupInvalid as error:
        raise _call_invalid(error) from error
    return placed, placed.visible


def _is_placed(setup: TensorFlowRequest | PyTorchRequest) -> bool:
    given = {"allocation": setup.allocation, "job": setup.job, "devices": setup.devices}
    named = [name for name, value in given.items() if value]
    if len(named) > 1:
        raise CallInvalid(named[0], given[named[0]], f"set only one of {', '.join(named)}")
    return bool(setup.allocation or setup.job)


def _listed_devices(parts: SharedParts, devices: tuple[str, ...]) -> tuple[Visible, ...]:
    found = []
    for each in devices:
        known = visible_device(each, parts.model.cluster)
        if known is None and not each.isdecimal():
            raise CallInvalid("devices", each, "name GPUs that a node lists, as in GET nodes")
        found.append(known or Visible(each))
    return tuple(found)


def _ids(visible: tuple[Visible, ...]) -> tuple[str, ...]:
    return tuple(each.id for each in visible)


def _call_invalid(error: SetupInvalid) -> CallInvalid:
    return CallInvalid(error.field, error.value, error.fix)


def _addresses(hosts: Sequence[str], port: int) -> tuple[str, ...]:
    """Return an address for each worker: workers on one host have different ports."""
    seen = Counter[str]()
    found = []
    for host in hosts:
        found.append(f"{host}:{port + seen[host]}")
        seen[host] += 1
    return tuple(found)
