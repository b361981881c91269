# SPDX-License-Identifier: Apache-2.0
"""CSV with a header, every cell judged by the type of its column."""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from gpupack_simulator.inputs.faults import Faults

_LONGEST = 60
"""Letters of a cell that a message shows."""

RowT = TypeVar("RowT", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Line(Generic[RowT]):
    """A row with the number of the line on which it ends."""

    number: int
    row: RowT


def read_rows(row: type[RowT], faults: Faults) -> list[Line[RowT]]:
    """The rows that are right; the others stand in `faults`. Other columns are left alone.

    Raises:
        InvalidInput: no text, no header, or a column is missing: no row can be read.
    """
    reader = csv.reader(io.StringIO(faults.text(), newline=""), strict=True)
    header = _header(reader, faults)
    columns = _columns(row, header, faults)
    return list(_rows(reader, row, columns, len(header), faults))


def _header(reader: Iterator[list[str]], faults: Faults) -> list[str]:
    try:
        header = [name.strip() for name in next(reader, [])]
    except csv.Error as error:
        raise faults.fatal(f"is not CSV: {error}", line=1) from error
    if not header:
        raise faults.fatal("is empty; the first line must name the columns")
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise faults.fatal(f"the header has {', '.join(twice)} twice", line=1)
    return header


def _columns(
    row: type[msgspec.Struct], header: list[str], faults: Faults
) -> list[tuple[msgspec.structs.FieldInfo, int]]:
    fields = msgspec.structs.fields(row)
    for field in fields:
        if field.required and field.encode_name not in header:
            faults.add(1, field.encode_name, f"is missing; there are {', '.join(header)}")
    faults.check()
    return [
        (field, header.index(field.encode_name)) for field in fields if field.encode_name in header
    ]


def _rows(
    reader: Any,
    row: type[RowT],
    columns: list[tuple[msgspec.structs.FieldInfo, int]],
    width: int,
    faults: Faults,
) -> Iterator[Line[RowT]]:
    try:
        for cells in reader:
            if not cells:
                continue
            if len(cells) != width:
                faults.add(reader.line_num, "", f"has {len(cells)} cells, the header {width}")
                continue
            values = _values(cells, columns, reader.line_num, faults)
            if values is not None:
                yield Line(reader.line_num, row(**values))
    except csv.Error as error:
        faults.add(reader.line_num, "", f"is not CSV: {error}")


def _values(
    cells: list[str],
    columns: list[tuple[msgspec.structs.FieldInfo, int]],
    line: int,
    faults: Faults,
) -> dict[str, Any] | None:
    values, before = {}, len(faults)
    for field, index in columns:
        cell = cells[index].strip()
        try:
            values[field.name] = msgspec.convert(cell, field.type, strict=False)
        except msgspec.ValidationError as error:
            faults.add(line, field.encode_name, f"{_shown(cell)}: {_told(error)}")
    return values if len(faults) == before else None


def _shown(cell: str) -> str:
    return repr(cell if len(cell) <= _LONGEST else f"{cell[:_LONGEST]}…")


def _told(error: msgspec.ValidationError) -> str:
    """Msgspec's words, less what is true of every cell: that it is text."""
    message = str(error).removesuffix(", got `str`")
    return message[:1].lower() + message[1:]
