# SPDX-License-Identifier: Apache-2.0
"""`gpupack top`."""

import contextlib
import datetime as dt
import sys
from collections.abc import AsyncGenerator

import click

from gpupack_cli import live_view
from gpupack_cli.answers import Status
from gpupack_cli.bars import drawn, of_answer, of_gpunode, ordered
from gpupack_cli.errors import NotAllowed, ServiceAway, SettingsWrong
from gpupack_cli.listing import listed
from gpupack_cli.live_view import Look, Seen
from gpupack_cli.notes import note
from gpupack_cli.options import Output, output_option, session_options
from gpupack_cli.output import show, show_document
from gpupack_cli.rest import Rest
from gpupack_cli.rest_nodes import all_nodes
from gpupack_cli.session import Session, run
from gpupack_crds.kinds import GPUNODES
from gpupack_kubeclient.client import Api
from gpupack_terminal import console, screen


def _a_number(_context: click.Context, _option: click.Parameter, value: float) -> float:
    """Refuse nan, which is in every range."""
    if value != value:  # noqa: PLR0124 - true only for nan
        raise click.BadParameter("it is no number of seconds")
    return value


@click.command(name="top")
@session_options(rest=True, namespaced=False)
@click.option("--once", is_flag=True, help="Print once and exit; the default in a pipe.")
@click.option(
    "--interval",
    default=2.0,
    show_default=True,
    type=click.FloatRange(0.5, 3600),
    callback=_a_number,
)
@click.option("--sort", type=click.Choice(("name", "used", "free")), default="name")
@click.option(
    "--filter", "part", default="", help="Show only nodes whose name or GPU model contains this."
)
@output_option
def command(
    session: Session, *, once: bool, interval: float, sort: str, part: str, output: Output
) -> None:
    """Show nodes and their GPUs as bars, live, until Ctrl-C."""
    run(lambda: _show(session, once=once, interval=interval, sort=sort, part=part, output=output))


async def _show(
    session: Session, *, once: bool, interval: float, sort: str, part: str, output: Output
) -> None:
    async with session.kubernetes() as api:
        nodes = Nodes(session, api)

        def chosen(seen: Seen) -> Seen:
            bars, status = seen
            kept = [bar for bar in bars if part.lower() in f"{bar.name} {bar.model}".lower()]
            return ordered(kept, by=sort), None if part else status

        shown = screen(sys.stdout)
        if output.document or once or not shown.live:
            async with nodes.opened() as look:
                bars, status = chosen(await look())
            if output.document:
                show_document({"nodes": bars, "status": status}, output)
                return
            width = None if output is Output.WIDE else shown.columns
            moment = dt.datetime.now(dt.UTC)
            show(drawn(bars, status=status, moment=moment, width=width, lines=None))
            return
        await live_view.watched(nodes.opened, chosen, console=console(), interval_seconds=interval)


class Nodes:
    """The source of nodes.

    Args:
        session: finds the REST API.
        api: the Kubernetes API server.
    """

    def __init__(self, session: Session, api: Api) -> None:
        self._session, self._api = session, api
        self._answered = False

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncGenerator[Look]:
        """Open the REST API, which has each GPU, or else GPUNodes, which have counts.

        GPUNodes are used only where the REST API has never answered.

        Raises:
            CliError, KubeError: neither answers, or the REST API no longer does.
        """
        async with contextlib.AsyncExitStack() as stack:
            try:
                rest = await stack.enter_async_context(self._session.rest(self._api))
                await rest.get("status", Status)
            except (ServiceAway, NotAllowed) as error:
                if self._answered:
                    raise
                # Where the cluster itself does not answer, that is the error.
                await _counted(self._api)
                note(f"the holders of single GPUs are unknown, only counts are shown: {error}")
                yield lambda: _counted(self._api)
            except SettingsWrong as error:
                if not self._answered:
                    raise
                # A file that is being replaced, such as the CA's, is empty for a moment.
                raise ServiceAway(str(error)) from error
            else:
                self._answered = True
                yield lambda: _known(rest)


async def _known(rest: Rest) -> Seen:
    return [of_answer(node) for node in await all_nodes(rest)], await rest.get("status", Status)


async def _counted(api: Api) -> Seen:
    return [of_gpunode(node) for node in await listed(api, GPUNODES)], None
