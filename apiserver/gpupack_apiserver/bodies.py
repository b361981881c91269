# SPDX-License-Identifier: Apache-2.0
"""Bodies of calls, which must have exactly the types of the OpenAPI document."""

from typing import Any, Final

import msgspec
from litestar import Request
from litestar.datastructures import State
from litestar.exceptions import SerializationException

from gpupack_apiserver.errors import CallInvalid
from gpupack_apiserver.parameter_types import PARSED_BODY, in_words

_AT: Final = " - at `$."


class StrictRequest(Request[Any, Any, State]):
    """A request with strict types: Litestar accepts 0 for false and "2" for 2, this does not."""

    async def json(self) -> Any:
        """Return the body, parsed.

        Raises:
            CallInvalid: a field has another type, which Litestar would convert, or the body is
                nested too deeply. Litestar itself refuses what it cannot convert.
        """
        try:
            given = await super().json()
        except RecursionError as error:
            raise CallInvalid("body", "", "send a body that is nested less deeply") from error
        except SerializationException as error:
            start = (await self.body())[:64].decode(errors="replace")
            raise CallInvalid("body", start, f"write valid JSON ({error})") from error
        self.state[PARSED_BODY] = given
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
            field, words = at.removesuffix("`"), in_words(reason)
            value = _value_of(given, field)
            quoted = ", without quotes" if value and isinstance(value, str) else ""
            fix = f"write {words}{quoted}" if words else reason
            raise CallInvalid(field, value, fix) from error


def _is_convertible(given: Any, wanted: type) -> bool:
    try:
        msgspec.convert(given, wanted, strict=False)
    except msgspec.ValidationError:
        return False
    return True


def _value_of(given: Any, field: str) -> Any:
    """Return the value of a top-level field of the body; values of nested fields are not shown."""
    return given.get(field, "") if isinstance(given, dict) else ""
