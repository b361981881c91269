# SPDX-License-Identifier: Apache-2.0
"""`gpupack top`."""

import contextlib
import datetime as dt
import sys
from collections.abc import AsyncGenerator

import click

from gpupack_cli import live_view
from gpupack_cli.bars import bar_from_gpunode, bar_from_rest, render_bars, sort_bars
from gpupack_cli.errors import ConfigurationInvalid, PermissionDenied, RestUnavailable
from gpupack_cli.listing import list_objects
from gpupack_cli.live_view import NodesState, ReadNodes
from gpupack_cli.notes import note
from gpupack_cli.options import Output, output_option, session_options
from gpupack_cli.output import show, show_document
from gpupack_cli.rest import Rest
from gpupack_cli.rest_nodes import all_nodes
from gpupack_cli.session import Session, run
from gpupack_crds.kinds import GPUNODES
from gpupack_kubeclient.client import Api
from gpupack_restapi.nodes import Status
from gpupack_terminal import console, screen


def _require_number(_context: click.Context, _option: click.Parameter, value: float) -> float:
    """Refuse nan, which is in every range."""
    if value != value:  # noqa: PLR0124 - true only for nan
        raise click.BadParameter("it is not a number of seconds")
    return value


@click.command(name="top")
@session_options(rest=True, namespaced=False)
@click.option("--once", is_flag=True, help="Print once and exit; the default in a pipe.")
@click.option(
    "--interval",
    default=2.0,
    show_default=True,
    type=click.FloatRange(0.5, 3600),
    callback=_require_number,
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

        def chosen(seen: NodesState) -> NodesState:
            bars, status = seen
            kept = [bar for bar in bars if part.lower() in f"{bar.name} {bar.model}".lower()]
            return sort_bars(kept, by=sort), None if part else status

        shown = screen(sys.stdout)
        if output.document or once or not shown.live:
            async with nodes.opened() as look:
                bars, status = chosen(await look())
            if output.document:
                show_document({"nodes": bars, "status": status}, output)
                return
            width = None if output is Output.WIDE else shown.columns
            moment = dt.datetime.now(dt.UTC)
            show(render_bars(bars, status=status, moment=moment, width=width, lines=None))
            return
        await live_view.run_live_view(
            nodes.opened, chosen, console=console(), interval_seconds=interval
        )


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
    async def opened(self) -> AsyncGenerator[ReadNodes]:
        """Open the REST API, which has each GPU, or else GPUNodes, which have counts.

        GPUNodes are used only where the REST API has never answered.

        Raises:
            CliError, KubeError: neither answers, or the REST API no longer does.
        """
        async with contextlib.AsyncExitStack() as stack:
            try:
                rest = await stack.enter_async_context(self._session.rest(self._api))
                await rest.get("status", Status)
            except (RestUnavailable, PermissionDenied) as error:
                if self._answered:
                    raise
                # Where the cluster itself does not answer, that is the error.
                await _read_gpunodes(self._api)
                note(f"single GPUs are not available, only counts are shown: {error}")
                yield lambda: _read_gpunodes(self._api)
            except ConfigurationInvalid as error:
                if not self._answered:
                    raise
                # A file that is being replaced, such as the CA's, is empty for a moment.
                raise RestUnavailable(str(error)) from error
            else:
                self._answered = True
                yield lambda: _read_rest(rest)


async def _read_rest(rest: Rest) -> NodesState:
    return [bar_from_rest(node) for node in await all_nodes(rest)], await rest.get("status", Status)


async def _read_gpunodes(api: Api) -> NodesState:
    return [bar_from_gpunode(node) for node in await list_objects(api, GPUNODES)], None
