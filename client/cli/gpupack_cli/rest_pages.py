# SPDX-License-Identifier: Apache-2.0
"""Lists of the REST API, read to their end."""

from collections.abc import AsyncIterator
from typing import Any, Protocol, TypeVar

from gpupack_cli import errors
from gpupack_cli.rest import Rest


class Page(Protocol):
    """A part of a list."""

    @property
    def next(self) -> str:
        """`after` of the call for the next part; empty: there is none."""


P = TypeVar("P", bound=Page)


async def pages(
    rest: Rest, path: str, kind: type[P], after: str = "", **query: Any
) -> AsyncIterator[P]:
    """Read page by page, from the beginning or after a cursor.

    Raises:
        RestUnavailable: a page names itself as its next.
        CliError: as for any call.
    """
    while True:
        page = await rest.get(path, kind, **query, after=after)
        yield page
        if not page.next:
            return
        after = _require_progress(path, page.next, after)


async def csv_pages(rest: Rest, path: str, **query: Any) -> AsyncIterator[bytes]:
    """Read CSV page by page, as one text with one header line; raises as `pages`."""
    text, following = await rest.get_linked(path, **query)
    yield text
    while following:
        params = following
        text, following = await rest.get_linked(path, **params)
        yield text.partition(b"\n")[2]
        if following:
            _require_progress(path, following.get("after", ""), params.get("after", ""))


def _require_progress(path: str, following: str, after: str) -> str:
    if following == after:
        raise errors.RestUnavailable(
            f"the answer to {path} names itself as its next page: {after!r}"
        )
    return following
