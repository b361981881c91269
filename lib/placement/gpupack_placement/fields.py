# SPDX-License-Identifier: Apache-2.0
"""Typed access to a JSON document, with errors that name the path and the value.

    nodes[3].devices[0].memoryMiB: -1 is not positive

An unknown field is an error too: otherwise a misspelt one would be ignored.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpupack_placement.errors import InvalidSnapshot

_MAX_SHOWN_CHARACTERS = 80
_MAX_NUMBER = 1 << 50


@dataclass(frozen=True, slots=True)
class Fields:
    """An object of the document and its path ("" at the top)."""

    values: Mapping[str, Any]
    path: str = ""

    @classmethod
    def of(cls, value: object, path: str = "") -> "Fields":
        """Read an object; raise InvalidSnapshot if the value is no object."""
        if not isinstance(value, Mapping):
            raise InvalidSnapshot(f"{path or 'the document'}: {_shown(value)} is not an object")
        return cls(value, path)

    def at(self, name: str) -> str:
        """Return the path of a field."""
        return f"{self.path}.{name}" if self.path else name

    def reject_unknown(self, *known: str) -> None:
        """Raise InvalidSnapshot for a field that is none of these."""
        for name in self.values:
            if name not in known:
                raise InvalidSnapshot(
                    f"{self.at(name)}: there is no such field; use {', '.join(known)}"
                )

    def objects(self, name: str, default: tuple[Any, ...] | None = None) -> Iterator["Fields"]:
        """Yield the objects of a list; without a default the list is required."""
        for index, value in enumerate(self._list(name, default)):
            yield Fields.of(value, f"{self.at(name)}[{index}]")

    def text(self, name: str, default: str | None = None) -> str:
        """Return the text of a field; without a default it is required and must not be empty."""
        value = self._value(name, default)
        if not isinstance(value, str):
            raise self.error(name, "is not a text")
        if not value and default is None:
            raise self.error(name, "is empty")
        return value

    def one_of(self, name: str, choices: Mapping[str, Any], default: str) -> Any:
        """Return the choice that the field's text names."""
        value = self.text(name, default)
        if value not in choices:
            raise self.error(name, f"is none of {', '.join(choices)}")
        return choices[value]

    def boolean(self, name: str, *, default: bool) -> bool:
        """Return the truth value of a field."""
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise self.error(name, "is neither true nor false")
        return value

    def number(
        self, name: str, default: int | None = None, *, minimum: int = 0, maximum: int = _MAX_NUMBER
    ) -> int:
        """Return a whole number; without a default the field is required."""
        value = self._value(name, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.error(name, "is not a whole number")
        if value < minimum:
            raise self.error(name, _TOO_SMALL.get(minimum, f"is below {minimum}"))
        if value > maximum:
            raise self.error(name, f"is above {maximum}")
        return value

    def number_or_none(
        self, name: str, *, minimum: int = 0, maximum: int = _MAX_NUMBER
    ) -> int | None:
        """Return a whole number; None if the field is null or absent."""
        absent = self.values.get(name) is None
        return None if absent else self.number(name, minimum=minimum, maximum=maximum)

    def texts(self, name: str) -> dict[str, str]:
        """Return an object of texts; {} if the field is absent."""
        fields = Fields.of(self._value(name, {}), self.at(name))
        return {key: fields.text(key, "") for key in fields.values}

    def numbers(self, name: str, *, maximum: int = _MAX_NUMBER) -> dict[str, int]:
        """Return an object of whole numbers; {} if the field is absent."""
        fields = Fields.of(self._value(name, {}), self.at(name))
        return {key: fields.number(key, maximum=maximum) for key in fields.values}

    def strings(self, name: str) -> tuple[str, ...]:
        """Return a list of non-empty texts; () if the field is absent."""
        values = self._list(name, ())
        for index, value in enumerate(values):
            if not isinstance(value, str) or not value:
                path = f"{self.at(name)}[{index}]"
                raise InvalidSnapshot(f"{path}: {_shown(value)} is not a text, or empty")
        return tuple(values)

    def error(self, name: str, what: str) -> InvalidSnapshot:
        """Return the error about a field's value."""
        return InvalidSnapshot(f"{self.at(name)}: {_shown(self.values.get(name))} {what}")

    def _list(self, name: str, default: tuple[Any, ...] | None) -> list[Any] | tuple[Any, ...]:
        value = self._value(name, default)
        if not isinstance(value, list | tuple):
            raise self.error(name, "is not a list")
        return value

    def _value(self, name: str, default: object) -> Any:
        if name in self.values:
            return self.values[name]
        if default is None:
            raise InvalidSnapshot(f"{self.at(name)}: the field is missing")
        return default


_TOO_SMALL = {0: "is negative", 1: "is not positive"}


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}…"
