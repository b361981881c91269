# SPDX-License-Identifier: Apache-2.0
"""Lists in pages that fit into memory, around objects that do not.

    500 items ─ Oversized ─► 250 ─ Oversized ─► … ─► 1 ─ Oversized ─► its metadata alone: skipped
        ▲                                           │
        └────────── twice as many ◄── a small page ─┘

Objects of some MiB each make a page of 500 larger than any memory. All pages are of one version of
the kind, whatever their sizes.
"""

import dataclasses
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from gpupack_kubeclient import client, errors, objects
from gpupack_kubeclient.resources import Resource

PAGE_ITEMS = 500

SMALL_BYTES = 2 << 20
"""A page up to this size is followed by one of twice as many items."""


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """A part of a list.

    Attributes:
        items: the items, not decoded yet.
        skipped: metadata of the objects that could not be read.
        version: the resourceVersion of the whole list.
    """

    items: tuple[msgspec.Raw, ...]
    skipped: tuple[objects.ObjectMeta, ...]
    version: str


async def pages(
    api: client.Api,
    resource: Resource[Any],
    *,
    namespace: str = "",
    selectors: Mapping[str, str] | None = None,
    first_items: int = PAGE_ITEMS,
) -> AsyncIterator[Page]:
    """List a kind page by page; the first page has at most `first_items` items.

    Raises:
        KubeError: the server does not answer, refuses, or the list expired before its end.
    """
    query, limit = dict(selectors or {}), first_items
    while True:
        query["limit"] = str(limit)
        try:
            page = await api.raw_page(resource, namespace=namespace, **query)
        except errors.Oversized:
            if limit > 1:
                limit = max(limit // 2, 1)
                continue
            accept = client.METADATA_LIST
            page = await api.raw_page(resource, namespace=namespace, accept=accept, **query)
            metadata = tuple(
                client.decode(raw, objects.Object).metadata for raw in page.items or ()
            )
            yield Page(items=(), skipped=metadata, version=page.metadata.resource_version)
        else:
            items = tuple(page.items or ())
            yield Page(items=items, skipped=(), version=page.metadata.resource_version)
            if sum(len(memoryview(raw)) for raw in items) <= SMALL_BYTES:
                limit = min(limit * 2, PAGE_ITEMS)
        if not page.metadata.continue_:
            return
        query["continue"] = page.metadata.continue_
