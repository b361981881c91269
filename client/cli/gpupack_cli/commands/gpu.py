# SPDX-License-Identifier: Apache-2.0
"""`gpupack gpu show|cordon|uncordon`."""

from collections import defaultdict
from typing import Final

import click
import msgspec

from gpupack_cli import written_names
from gpupack_cli.errors import CliError
from gpupack_cli.gpunode_writes import change_maintenance, get_node
from gpupack_cli.maintenance import cordon_entries, find_device, find_gpu, uncordon_entries
from gpupack_cli.node_rows import GPU_COLUMNS, NodeGpus
from gpupack_cli.notes import note
from gpupack_cli.options import Output, output_option, session_options
from gpupack_cli.output import show_document, show_table
from gpupack_cli.rest import Rest
from gpupack_cli.rest_nodes import one_node, read_with_fallback
from gpupack_cli.rest_pages import pages
from gpupack_cli.session import Session, run
from gpupack_cli.text import plain
from gpupack_crds.kinds import GpuNode
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.errors import KubeError
from gpupack_restapi.holders import Holders, HolderView

PAGE_SIZE: Final = 5000


@click.group(name="gpu")
def command() -> None:
    """Show, cordon and uncordon single GPUs."""


@command.command(name="show")
@click.argument("node", callback=written_names.name)
@click.argument("gpu", default="")
@session_options(rest=True, namespaced=False)
@output_option
def show(session: Session, node: str, gpu: str, *, output: Output) -> None:
    """Show the GPUs of NODE, or one by its index or UUID.

    Without permission to read GPUNodes, the data comes from the REST API, without causes and bus
    addresses.
    """
    run(lambda: _show(session, node, gpu, output=output))


@command.command(name="cordon")
@click.argument("node", callback=written_names.name)
@click.argument("gpus", nargs=-1)
@click.option("--reason", required=True, help="Reason, shown in the messages of pending jobs.")
@session_options(namespaced=False)
def cordon(session: Session, node: str, gpus: tuple[str, ...], *, reason: str) -> None:
    """Cordon GPUs of NODE: they get no new work, and running work continues.

    GPUS are indices or UUIDs (default: all GPUs of the node).
    """
    run(lambda: _cordon(session, node, gpus, reason))


@command.command(name="uncordon")
@click.argument("node", callback=written_names.name)
@click.argument("gpus", nargs=-1)
@session_options(namespaced=False)
def uncordon(session: Session, node: str, gpus: tuple[str, ...]) -> None:
    """Uncordon GPUs of NODE (default: all of them); this also ends a drain."""
    run(lambda: _uncordon(session, node, gpus))


async def _show(session: Session, name: str, gpu: str, *, output: Output) -> None:
    async with session.kubernetes() as api:
        shown = await read_with_fallback(
            session, api, lambda: _read_gpunode(api, name), lambda rest: _read_rest(rest, name)
        )
        held = await _holders(session, api, name)
    rows = [find_gpu(name, shown.gpus, gpu)] if gpu else shown.gpus
    if held is not None:
        rows = [msgspec.structs.replace(row, holders=tuple(held[row.uuid])) for row in rows]
    if output.document:
        show_document({"node": name, "gpus": rows}, output)
        return
    show_table(GPU_COLUMNS, (row.cells() for row in rows), output)
    if shown.held_by:
        note(f"pods that hold GPUs of {name}: {shown.held_by}")


async def _holders(session: Session, api: Api, node: str) -> defaultdict[str, list[str]] | None:
    """Return the visible pods that hold each GPU, by UUID; None: unknown."""
    found = defaultdict[str, list[str]](list)
    try:
        async with session.rest(api) as rest:
            async for page in pages(rest, "holders", Holders, node=node, limit=PAGE_SIZE):
                for each in page.holders:
                    found[each.uuid].append(plain(holder_text(each)))
    except (CliError, KubeError) as error:
        note(f"without holders: {error}")
        return None
    return found


def holder_text(holder: HolderView) -> str:
    """Return «team/train (worker 0, pod train-1-0-x7k2p)» or «team/pod/notebook 40%»."""
    part = "" if holder.percent >= 100 else f" {holder.percent}%"  # noqa: PLR2004 - of a whole
    worker = "" if holder.worker is None else f"worker {holder.worker}, "
    whose = f"{holder.job} ({worker}pod {holder.pod})" if holder.job else f"pod/{holder.pod}"
    return f"{holder.namespace}/{whose}{part}"


async def _read_gpunode(api: Api, name: str) -> NodeGpus:
    return NodeGpus.from_object(await get_node(api, name))


async def _read_rest(rest: Rest, name: str) -> NodeGpus:
    return NodeGpus.from_rest(await one_node(rest, name))


async def _cordon(session: Session, name: str, gpus: tuple[str, ...], reason: str) -> None:
    async with session.kubernetes() as api:
        await change_maintenance(
            api, name, lambda node: cordon_entries(node, _uuids(node, gpus), reason)
        )
    note(f"{_which(name, gpus)} cordoned: {reason}")


async def _uncordon(session: Session, name: str, gpus: tuple[str, ...]) -> None:
    async with session.kubernetes() as api:
        await change_maintenance(api, name, lambda node: uncordon_entries(node, _uuids(node, gpus)))
    note(f"{_which(name, gpus)} back in service")


def _uuids(node: GpuNode, gpus: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(find_device(node, each).uuid for each in gpus))


def _which(node: str, gpus: tuple[str, ...]) -> str:
    return f"GPU {', '.join(gpus)} of {node}" if gpus else f"all GPUs of {node}"
