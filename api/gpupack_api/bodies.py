# SPDX-License-Identifier: Apache-2.0
"""Bodies of calls, which are of the types that the OpenAPI document names and of no others."""

from typing import Any, Final

import msgspec
from litestar import Request
from litestar.datastructures import State

from gpupack_api.errors import CallWrong
from gpupack_api.expectations import GIVEN

_AT: Final = " - at `$."


class StrictRequest(Request[Any, Any, State]):
    """Litestar takes 0 for false and "2" for 2, in bodies as in queries; this does not."""

    async def json(self) -> Any:
        """Return the body, parsed.

        Raises:
            CallWrong: a field is of another type, which Litestar would convert, or the body is
                nested too deeply. What it would not convert either it refuses itself.
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
    """Of a field of the body itself; of one further down it is not told."""
    return given.get(field, "") if isinstance(given, dict) else ""
