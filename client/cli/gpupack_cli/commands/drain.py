# SPDX-License-Identifier: Apache-2.0
"""`gpupack drain`."""

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncGenerator
from typing import Final

import click

from gpupack_cli import written_names
from gpupack_cli.durations import duration_option
from gpupack_cli.errors import ObjectNotFound, UsageInvalid
from gpupack_cli.gpunode_writes import change_maintenance
from gpupack_cli.maintenance import drain_entries
from gpupack_cli.notes import note
from gpupack_cli.options import session_options
from gpupack_cli.session import Session, run
from gpupack_cli.worker_log import LOST_PAUSE_SECONDS, TRANSIENT_ERRORS, raise_permanent
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
    callback=duration_option(),
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

    GPUJobs with movable: true move as soon as there is a placement for them; other GPUJobs are
    stopped and wait in the queue, and standalone pods are evicted. `gpupack gpu uncordon NODE`
    ends the drain. Pods without GPUs stay: kubectl drain evicts them. Ctrl-C ends the waiting, not
    the drain.
    """
    if movable_only and stop_in is not None:
        raise UsageInvalid("--stop-in applies to jobs that cannot move; leave out --movable-only")
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
        node = await change_maintenance(
            api,
            name,
            lambda node: drain_entries(
                node, reason, drain, api.clock.now() + later if later else None
            ),
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
        if not count_held(await api.get(GPUNODES, name)):
            note(f"{name} is empty: no pod holds one of its GPUs")
            return


async def _until_reported_empty(api: Api, name: str) -> None:
    """Wait until the node is empty, across interruptions of the API server and missed events."""
    shown = ""
    while True:
        try:
            async with contextlib.aclosing(_states(api, name)) as states:
                async for node in states:
                    if not count_held(node):
                        return
                    if (text := holders_text(node)) != shown:
                        note(text)
                        shown = text
        except Expired:
            continue
        except NotFound as error:
            raise _deleted(name) from error
        except TRANSIENT_ERRORS as error:
            raise_permanent(error)
            await asyncio.sleep(LOST_PAUSE_SECONDS)


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


def _deleted(name: str) -> ObjectNotFound:
    return ObjectNotFound(f"GPUNode {name} was deleted; a new one has no maintenance")


def count_held(node: GpuNode) -> int:
    """Return how many of its GPUs are held, whole or by shares."""
    return node.status.held + node.status.shared


def holders_text(node: GpuNode) -> str:
    """Return what still holds GPUs."""
    return (
        f"{count_held(node)} of {node.status.gpus} GPUs are held, by {node.status.held_by or '…'}"
    )
