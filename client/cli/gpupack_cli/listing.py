# SPDX-License-Identifier: Apache-2.0
"""Lists of objects of a kind, in one namespace or all."""

from collections.abc import Mapping
from typing import TypeVar

from gpupack_cli.notes import note
from gpupack_kubeclient import client, errors, listing, objects
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.resources import Resource

T = TypeVar("T", bound=objects.Object)


async def list_objects(
    api: Api,
    resource: Resource[T],
    *,
    namespace: str = "",
    selectors: Mapping[str, str] | None = None,
) -> list[T]:
    """Return all objects, by namespace and name; name unreadable ones on stderr.

    Raises:
        KubeError: the API server does not answer, or refuses.
    """
    found, left_out = list[T](), list[str]()
    async for page in listing.pages(api, resource, namespace=namespace, selectors=selectors):
        left_out += [each.name for each in page.skipped]
        for raw in page.items:
            try:
                found.append(client.read(raw, resource))
            except errors.KubeError:
                left_out.append(client.decode(raw, objects.Object).metadata.name)
    if left_out:
        note(f"{len(left_out)} {resource.plural} cannot be read: {', '.join(left_out[:5])}")
    return sorted(found, key=lambda each: each.key)
