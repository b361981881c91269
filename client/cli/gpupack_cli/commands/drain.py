# SPDX-License-Identifier: Apache-2.0
"""`gpupack drain`."""

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncGenerator
from typing import Final

import click

from gpupack_cli import written_names
from gpupack_cli.errors import NotThere, UsageWrong
from gpupack_cli.gpunode_writes import change
from gpupack_cli.maintenance import drained
from gpupack_cli.notes import note
from gpupack_cli.options import session_options
from gpupack_cli.session import Session, run
from gpupack_cli.spans import span
from gpupack_cli.worker_log import LOST_PAUSE, MAY_PASS, require_passing
from gpupack_crds.gpunode import Drain
from gpupack_crds.kinds import GPUNODES, GpuNode
from gpupack_kubeclient.client import Api, Event, decode
from gpupack_kubeclient.errors import Expired, NotFound

SETTLE_SECONDS: Final = 5.0


@click.command(name="drain")
@click.argument("node", callback=written_names.name)
@session_options(namespaced=False)
@click.option("--reason", required=True, help="Reason, shown in the messages of stopped jobs.")
@click.option("--movable-only", is_flag=True, help="Stop only jobs that can be moved.")
@click.option(
    "--stop-in",
    callback=span(),
    help="Grace period of jobs that cannot be moved, such as 30m or 2h.",
)
@click.option("--no-wait", is_flag=True, help="Do not wait until the node is empty.")
def command(
    session: Session,
    node: str,
    *,
    reason: str,
    movable_only: bool,
    stop_in: int | None,
    no_wait: bool,
) -> None:
    """Cordon all GPUs of NODE, stop their jobs, and wait until all are free.

    GPUJobs with movable: true move as soon as there is a place for them; the others are stopped
    and wait for another place, standalone pods are evicted. `gpupack gpu uncordon NODE` ends it.
    Pods without GPUs stay: kubectl drain takes them off. Ctrl-C ends the waiting, not the drain.
    """
    if movable_only and stop_in is not None:
        raise UsageWrong("--stop-in is about what cannot be moved; leave out --movable-only")
    drain: Drain = "Movable" if movable_only else "All"
    run(lambda: _drain(session, node, reason, drain=drain, after_seconds=stop_in, wait=not no_wait))


async def _drain(
    session: Session,
    name: str,
    reason: str,
    *,
    drain: Drain,
    after_seconds: int | None,
    wait: bool,
) -> None:
    async with session.kubernetes() as api:
        later = None if after_seconds is None else dt.timedelta(seconds=after_seconds)
        node = await change(
            api,
            name,
            lambda node: drained(node, reason, drain, api.clock.now() + later if later else None),
        )
        note(f"{name} is drained: {reason}")
        if wait:
            await _until_empty(api, node)


async def _until_empty(api: Api, node: GpuNode) -> None:
    name = node.metadata.name
    while True:
        await _until_reported_empty(api, name)
        # The agent counts a few seconds late: a pod that was bound just before the drain shows by
        # then.
        await asyncio.sleep(SETTLE_SECONDS)
        if not holding(await api.get(GPUNODES, name)):
            note(f"{name} is empty: no pod holds a GPU of it")
            return


async def _until_reported_empty(api: Api, name: str) -> None:
    """Wait until the node is empty, across interruptions of the API server and missed events."""
    shown = ""
    while True:
        try:
            async with contextlib.aclosing(_states(api, name)) as states:
                async for node in states:
                    if not holding(node):
                        return
                    if (text := left(node)) != shown:
                        note(text)
                        shown = text
        except Expired:
            continue
        except NotFound as error:
            raise _deleted(name) from error
        except MAY_PASS as error:
            require_passing(error)
            await asyncio.sleep(LOST_PAUSE)


async def _states(api: Api, name: str) -> AsyncGenerator[GpuNode]:
    """Yield the GPUNode now and after each change, until the watch ends."""
    yield await api.get(GPUNODES, name)
    stream = api.watch(GPUNODES, fieldSelector=f"metadata.name={name}")
    async with contextlib.aclosing(stream):
        async for event in stream:
            if not isinstance(event, Event) or event.type == "BOOKMARK":
                continue
            if event.type == "DELETED":
                raise _deleted(name)
            yield decode(event.object, GpuNode)


def _deleted(name: str) -> NotThere:
    return NotThere(f"GPUNode {name} was deleted; a new one has no maintenance")


def holding(node: GpuNode) -> int:
    """Return how many of its GPUs are held, whole or by shares."""
    return node.status.held + node.status.shared


def left(node: GpuNode) -> str:
    """Return what still holds GPUs."""
    return f"{holding(node)} of {node.status.gpus} GPUs are held, by {node.status.held_by or '…'}"
