# SPDX-License-Identifier: Apache-2.0
"""Nodes from the REST API, for callers that may not read GPUNodes.

GPUNodes are cluster-scoped, which roles in one namespace do not cover. The REST API shows the whole
cluster to every user that the API server knows.
"""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, TypeVar

from gpupack_cli import errors
from gpupack_cli.notes import note
from gpupack_cli.rest import Rest
from gpupack_cli.rest_pages import pages
from gpupack_cli.session import Session
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.errors import Refused
from gpupack_restapi.nodes import Nodes, NodeView

T = TypeVar("T")

PAGE_SIZE: Final = 5000
MAX_NAMES: Final = 20
OMITTED_TEXT: Final = "it omits drivers, agents, causes and reasons of maintenance"


async def read_with_fallback(
    session: Session,
    api: Api,
    from_kubernetes: Callable[[], Awaitable[T]],
    from_rest: Callable[[Rest], Awaitable[T]],
) -> T:
    """Return data from GPUNodes; for callers that may not read them, from the REST API.

    Raises:
        PermissionDenied: the caller may not, and the REST API does not answer either.
        CliError, KubeError: as `read` and `asked` do.
    """
    try:
        return await from_kubernetes()
    except Refused as refusal:
        if refusal.status != HTTPStatus.FORBIDDEN:
            raise
        try:
            async with session.rest(api) as rest:
                found = await from_rest(rest)
        except (
            errors.RestUnavailable,
            errors.PermissionDenied,
            errors.ConfigurationInvalid,
        ) as error:
            raise errors.PermissionDenied(
                f"you may not read GPUNodes ({refusal.said}), and the REST API, which shows nodes "
                f"without that permission, is not available: {error}; request the API's address "
                "and CA (GPUPACK_SERVER and GPUPACK_CA), or a ClusterRoleBinding to gpupack-view, "
                "from an administrator of the cluster"
            ) from refusal
        note(f"data from the REST API, since you may not read GPUNodes; {OMITTED_TEXT}")
        return found


async def all_nodes(rest: Rest) -> list[NodeView]:
    """Return all nodes, by name, from all pages; raises CliError."""
    return [
        node async for page in pages(rest, "nodes", Nodes, limit=PAGE_SIZE) for node in page.nodes
    ]


async def one_node(rest: Rest, name: str) -> NodeView:
    """Return the node of that name.

    Raises:
        ObjectNotFound: there is none; it names the existing ones.
        CliError: the API does not answer.
    """
    nodes = await all_nodes(rest)
    for each in nodes:
        if each.node_name == name:
            return each
    raise node_not_found(name, [each.node_name for each in nodes])


def node_not_found(name: str, existing: list[str]) -> errors.ObjectNotFound:
    """Return the error for a missing node, with the existing ones."""
    more = f" and {len(existing) - MAX_NAMES} more" if len(existing) > MAX_NAMES else ""
    return errors.ObjectNotFound(
        f"there is no node {name!r} with GPUs; there are: "
        f"{', '.join(existing[:MAX_NAMES]) or 'none'}{more}"
    )
