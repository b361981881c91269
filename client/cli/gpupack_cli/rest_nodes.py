# SPDX-License-Identifier: Apache-2.0
"""Nodes from the REST API, for callers that may not read GPUNodes.

GPUNodes are cluster-scoped, which roles in one namespace do not cover. The REST API shows the whole
cluster to every user that the API server knows.
"""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, TypeVar

from gpupack_cli import errors
from gpupack_cli.answers import Node, Nodes
from gpupack_cli.notes import note
from gpupack_cli.rest import Rest
from gpupack_cli.rest_pages import pages
from gpupack_cli.session import Session
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.errors import Refused

T = TypeVar("T")

PAGE: Final = 5000
SHOWN: Final = 20
OMITTED: Final = "it omits drivers, agents, causes and reasons of maintenance"


async def read_or_asked(
    session: Session,
    api: Api,
    read: Callable[[], Awaitable[T]],
    asked: Callable[[Rest], Awaitable[T]],
) -> T:
    """Return data from GPUNodes; for callers that may not read them, from the REST API.

    Raises:
        NotAllowed: the caller may not, and the REST API does not answer either.
        CliError, KubeError: as `read` and `asked` do.
    """
    try:
        return await read()
    except Refused as refusal:
        if refusal.status != HTTPStatus.FORBIDDEN:
            raise
        try:
            async with session.rest(api) as rest:
                found = await asked(rest)
        except (errors.ServiceAway, errors.NotAllowed, errors.SettingsWrong) as error:
            raise errors.NotAllowed(
                f"{errors.of_kube(refusal)}; and the REST API does not answer instead: {error}"
            ) from refusal
        note(f"answered by the REST API, since {refusal.said}; {OMITTED}")
        return found


async def all_nodes(rest: Rest) -> list[Node]:
    """Return all nodes, by name, from all pages; raises CliError."""
    return [node async for page in pages(rest, "nodes", Nodes, limit=PAGE) for node in page.nodes]


async def one_node(rest: Rest, name: str) -> Node:
    """Return the node of that name.

    Raises:
        NotThere: there is none; it names the existing ones.
        CliError: the API does not answer.
    """
    nodes = await all_nodes(rest)
    for each in nodes:
        if each.node_name == name:
            return each
    raise no_node(name, [each.node_name for each in nodes])


def no_node(name: str, there: list[str]) -> errors.NotThere:
    """Return the error for a missing node, with the existing ones."""
    more = f" and {len(there) - SHOWN} more" if len(there) > SHOWN else ""
    return errors.NotThere(
        f"there is no node {name!r} with GPUs; there are: "
        f"{', '.join(there[:SHOWN]) or 'none'}{more}"
    )
