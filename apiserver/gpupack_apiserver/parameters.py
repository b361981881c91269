# SPDX-License-Identifier: Apache-2.0
"""Refusal of unknown and repeated query parameters.

A misspelled filter would filter nothing; of a repeated one only one value would count.

This applies only to calls in the OpenAPI document. Links to the page and its files may have
parameters that a chat program adds, and a scrape of /metrics those of Prometheus.
"""

from difflib import get_close_matches
from typing import Any, Final

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from litestar.params import QueryParameter

from gpupack_apiserver.errors import CallInvalid

MAX_CHARACTERS: Final = 64
"""Maximum characters of a name in an answer."""


def require_valid_parameters(
    call: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler
) -> None:
    """Refuse a call whose query has a parameter twice, or one that it does not have (a guard).

    Raises:
        CallInvalid: it names the first of them; of an unknown one the existing ones.
    """
    if not isinstance(handler, HTTPRouteHandler) or not handler.resolve_include_in_schema():
        return
    known, seen = parameter_names(handler), set[str]()
    for name, value in call.query_params.multi_items():
        if name not in known:
            raise CallInvalid(name[:MAX_CHARACTERS], value, _fix(name, known))
        if name in seen:
            raise CallInvalid(name, value, "the parameter is repeated; send it once")
        seen.add(name)


def parameter_names(handler: BaseRouteHandler) -> list[str]:
    """Return the names of the query's parameters."""
    fields = handler.parsed_fn_signature.parameters.values()
    declared = ((each.name, each.kwarg_definition) for each in fields)
    return sorted(kind.name or name for name, kind in declared if isinstance(kind, QueryParameter))


def _fix(name: str, known: list[str]) -> str:
    if not known:
        return "this call has no parameters; remove it"
    there = f"there is no such parameter; there are {', '.join(known)}"
    nearest = get_close_matches(name[:MAX_CHARACTERS].lower(), known, n=1)
    return f"{there}; did you mean {nearest[0]}?" if nearest else there
