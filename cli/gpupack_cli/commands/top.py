# SPDX-License-Identifier: Apache-2.0
"""`gpupack top`."""

import asyncio
import contextlib
import datetime as dt
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable

import click
from rich.live import Live

from gpupack_cli.answers import Status
from gpupack_cli.bars import NodeBar, drawn, of_answer, of_gpunode, ordered
from gpupack_cli.errors import NotAllowed, ServiceAway
from gpupack_cli.listing import listed
from gpupack_cli.notes import note
from gpupack_cli.options import Output, output_option, session_options
from gpupack_cli.output import show, show_document
from gpupack_cli.rest import Rest
from gpupack_cli.rest_nodes import all_nodes
from gpupack_cli.session import Session, run
from gpupack_crds.kinds import GPUNODES
from gpupack_kube.client import Api
from gpupack_terminal import console, screen

Look = Callable[[], Awaitable[tuple[list[NodeBar], Status | None]]]


def _a_number(_context: click.Context, _option: click.Parameter, value: float) -> float:
    """Refuse nan, which is in every range."""
    if value != value:  # noqa: PLR0124 - of no other number
        raise click.BadParameter("it is no number of seconds")
    return value


@click.command(name="top")
@session_options(rest=True, namespaced=False)
@click.option("--once", is_flag=True, help="Once, and end; so it is in a pipe, too.")
@click.option(
    "--interval",
    default=2.0,
    show_default=True,
    type=click.FloatRange(0.5, 3600),
    callback=_a_number,
)
@click.option("--sort", type=click.Choice(("name", "used", "free")), default="name")
@click.option("--filter", "part", default="", help="Nodes with this in their name or model.")
@output_option
def command(
    session: Session, *, once: bool, interval: float, sort: str, part: str, output: Output
) -> None:
    """Show nodes and their GPUs as bars, live, until Ctrl-C."""
    run(lambda: _show(session, once=once, interval=interval, sort=sort, part=part, output=output))


async def _show(
    session: Session, *, once: bool, interval: float, sort: str, part: str, output: Output
) -> None:
    async with session.kubernetes() as api, _looking(session, api) as look:

        async def seen() -> tuple[list[NodeBar], Status | None]:
            bars, status = await look()
            chosen = [bar for bar in bars if part.lower() in f"{bar.name} {bar.model}".lower()]
            return ordered(chosen, by=sort), None if part else status

        if output.document:
            bars, status = await seen()
            show_document({"nodes": bars, "status": status}, output)
            return
        shown = screen(sys.stdout)
        if once or not shown.live:
            bars, status = await seen()
            width = None if output is Output.WIDE else shown.columns
            moment = dt.datetime.now(dt.UTC)
            show(drawn(bars, status=status, moment=moment, width=width, lines=None))
            return
        await _live(seen, interval)


async def _live(seen: Look, interval: float) -> None:
    out, told = console(), ""
    with Live(console=out, screen=True, auto_refresh=False) as live:
        while True:
            try:
                bars, status = await seen()
                told = ""
            except ServiceAway as error:
                # The last picture stays: it says of when it is.
                told = str(error)
            if not told:
                moment = dt.datetime.now(dt.UTC)
                picture = drawn(
                    bars, status=status, moment=moment, width=out.width, lines=out.height
                )
                live.update(picture, refresh=True)
            await asyncio.sleep(interval)


@contextlib.asynccontextmanager
async def _looking(session: Session, api: Api) -> AsyncGenerator[Look]:
    """The REST API, which knows each GPU; without it GPUNodes, which count."""
    async with contextlib.AsyncExitStack() as stack:
        try:
            rest = await stack.enter_async_context(session.rest(api))
            await rest.get("status", Status)
        except (ServiceAway, NotAllowed) as error:
            # Where the cluster itself is away, that is what is wrong.
            await _counted(api)
            note(f"which GPU is whose is not known, only how many are: {error}")
            yield lambda: _counted(api)
        else:
            yield lambda: _known(rest)


async def _known(rest: Rest) -> tuple[list[NodeBar], Status | None]:
    return [of_answer(node) for node in await all_nodes(rest)], await rest.get("status", Status)


async def _counted(api: Api) -> tuple[list[NodeBar], Status | None]:
    return [of_gpunode(node) for node in await listed(api, GPUNODES)], None
