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
from gpupack_apiserver.errors import CallWrong
from gpupack_apiserver.patterns import KEY
from gpupack_apiserver.placed_process import PlacedProcess, visible_device
from gpupack_apiserver.routes.parts import PREFIX, Call, Shown, Whose, shown_of
from gpupack_crds.gpujob import MAX_WORKERS

Key = Annotated[str, msgspec.Meta(pattern=KEY, max_length=317)]
"""NAMESPACE/NAME; empty: none."""

Worker = Annotated[int, msgspec.Meta(ge=0, lt=MAX_WORKERS)]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]


class TensorFlowAsk(TensorFlowSetup, frozen=True, forbid_unknown_fields=True):
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


class PyTorchAsk(PyTorchSetup, frozen=True, forbid_unknown_fields=True):
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


TensorFlowBody = Annotated[TensorFlowAsk, Body(schema_extra={"additionalProperties": False})]
PyTorchBody = Annotated[PyTorchAsk, Body(schema_extra={"additionalProperties": False})]


@post(
    f"{PREFIX}/setup-tensorflow",
    tags=["setup"],
    status_code=200,
    responses=problems.REFUSALS | problems.MISSING,
)
async def setup_tensorflow(request: Call, state: State, data: TensorFlowBody) -> TensorFlowSettings:
    """Tell what a process sets to use its GPUs by TensorFlow, and in which environment."""
    placed, visible = await _known(shown_of(state), request, data)
    asked = data
    if placed is not None:
        workers, index = data.workers, data.task_index
        if data.strategy == "multi_worker" and not workers:
            workers, index = _addresses(placed.hosts, data.port), data.worker
        asked = msgspec.structs.replace(
            data, devices=_ids(visible), workers=workers, task_index=index
        )
    try:
        return tensorflow_settings(asked, visible)
    except SetupInvalid as error:
        raise _wrong(error) from error


@post(
    f"{PREFIX}/setup-pytorch",
    tags=["setup"],
    status_code=200,
    responses=problems.REFUSALS | problems.MISSING,
)
async def setup_pytorch(request: Call, state: State, data: PyTorchBody) -> PyTorchSettings:
    """Tell what a process sets to use its GPUs by PyTorch, and in which environment."""
    placed, visible = await _known(shown_of(state), request, data)
    try:
        return pytorch_settings(data if placed is None else _placed(data, placed), visible)
    except SetupInvalid as error:
        raise _wrong(error) from error


def _placed(asked: PyTorchAsk, placed: PlacedProcess) -> PyTorchAsk:
    """Return a setup with values from the placement where they are not given."""
    rank = asked.rank or placed.ranks_before + (asked.local_rank or 0)
    local = asked.local_rank
    if local is None:
        local = max(rank - placed.ranks_before, 0) % len(placed.visible)
    alone = len(placed.hosts) == 1
    left = asked.master_addr == PyTorchSetup().master_addr and not alone
    return msgspec.structs.replace(
        asked,
        devices=_ids(placed.visible),
        world_size=asked.world_size or placed.ranks,
        rank=rank,
        local_rank=local,
        master_addr=placed.hosts[0] if left else asked.master_addr,
    )


async def _known(
    parts: Shown, request: Call, asked: TensorFlowAsk | PyTorchAsk
) -> tuple[PlacedProcess | None, tuple[Visible, ...]]:
    """Return the process's place in an allocation or job, if any, and its known GPUs."""
    if not _is_placed(asked):
        await parts.viewer(request)
        return None, _listed(parts, asked.devices)
    try:
        placed = await parts.process_of(request, Whose(asked.allocation, asked.job, asked.worker))
    except SetupInvalid as error:
        raise _wrong(error) from error
    return placed, placed.visible


def _is_placed(asked: TensorFlowAsk | PyTorchAsk) -> bool:
    given = {"allocation": asked.allocation, "job": asked.job, "devices": asked.devices}
    named = [name for name, value in given.items() if value]
    if len(named) > 1:
        raise CallWrong(named[0], given[named[0]], f"name either {' or '.join(named)}")
    return bool(asked.allocation or asked.job)


def _listed(parts: Shown, devices: tuple[str, ...]) -> tuple[Visible, ...]:
    found = []
    for each in devices:
        known = visible_device(each, parts.model.cluster)
        if known is None and not each.isdecimal():
            raise CallWrong("devices", each, "name GPUs that a node lists, as in GET nodes")
        found.append(known or Visible(each))
    return tuple(found)


def _ids(visible: tuple[Visible, ...]) -> tuple[str, ...]:
    return tuple(each.id for each in visible)


def _wrong(error: SetupInvalid) -> CallWrong:
    return CallWrong(error.field, error.value, error.fix)


def _addresses(hosts: Sequence[str], port: int) -> tuple[str, ...]:
    """Return an address for each worker: workers on one host have different ports."""
    seen = Counter[str]()
    found = []
    for host in hosts:
        found.append(f"{host}:{port + seen[host]}")
        seen[host] += 1
    return tuple(found)
