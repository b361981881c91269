# SPDX-License-Identifier: Apache-2.0
"""Bodies of calls, which must have exactly the types of the OpenAPI document."""

from typing import Any, Final

import msgspec
from litestar import Request
from litestar.datastructures import State

from gpupack_apiserver.errors import CallWrong
from gpupack_apiserver.expectations import GIVEN

_AT: Final = " - at `$."


class StrictRequest(Request[Any, Any, State]):
    """A request with strict types: Litestar accepts 0 for false and "2" for 2, this does not."""

    async def json(self) -> Any:
        """Return the body, parsed.

        Raises:
            CallWrong: a field has another type, which Litestar would convert, or the body is nested
                too deeply. Litestar itself refuses what it cannot convert.
        """
        try:
            given = await super().json()
        except RecursionError as error:
            raise CallWrong("body", "", "nest it less deeply: it cannot be read") from error
        self.state[GIVEN] = given
        field = getattr(self.route_handler, "parsed_data_field", None)
        if field is not None:
            _require_types(given, field.annotation)
        return given


def _require_types(given: Any, wanted: type) -> None:
    try:
        msgspec.convert(given, wanted)
    except msgspec.ValidationError as error:
        reason, found, at = str(error).partition(_AT)
        if found and _is_convertible(given, wanted):
            field = at.removesuffix("`")
            raise CallWrong(field, _value_of(given, field), reason) from error


def _is_convertible(given: Any, wanted: type) -> bool:
    try:
        msgspec.convert(given, wanted, strict=False)
    except msgspec.ValidationError:
        return False
    return True


def _value_of(given: Any, field: str) -> Any:
    """Return the value of a top-level field of the body; values of nested fields are not shown."""
    return given.get(field, "") if isinstance(given, dict) else ""
