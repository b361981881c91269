# SPDX-License-Identifier: Apache-2.0
"""Tables as text, one row per line, with every cell checked by the type of its column."""

import csv
import io
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any, Final, Generic, TypeVar

import msgspec

from gpupack_simulator.inputs.compression import read_text
from gpupack_simulator.inputs.faults import Faults

_LONGEST = 60
"""Maximum length of a cell in a message."""

RowT = TypeVar("RowT", bound=msgspec.Struct)

BLANK: Final = frozenset({"", "-", "none", "null", "na", "n/a", "nan", "nat", "\\n"})
"""Cells that mean «no value», in any case."""

BLANK_HINT: Final = "; `leaveOut: [blank]` skips such rows"

SEPARATORS: Final = {"tab": "\t", "space": " "}
"""Names of invisible separators."""
_LIKELY: Final = {"\t": "tab", ";": '";"', "|": '"|"', ",": '","'}
"""Separators of published tables, as a mapping writes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableForm:
    """The form of a table.

    Attributes:
        separator: one character; several spaces in a row count as one.
        header: the first line names the columns; False: their names are 1, 2, 3 and so on.
        blank: values of fields that may be blank, by the field's name.
        leave_out_blank: rows with another blank cell are counted and skipped; False: they are
            faults; None: they are faults, and a mapping of this table cannot change that.
        adjustable: messages name the fields of a mapping that would help.
    """

    separator: str = ","
    header: bool = True
    blank: Mapping[str, Any] = field(default_factory=dict)
    leave_out_blank: bool | None = None
    adjustable: bool = False


@dataclass(frozen=True, slots=True)
class Line(Generic[RowT]):
    """A row with the number of the line on which it ends."""

    number: int
    row: RowT


@dataclass(slots=True)
class Table(Generic[RowT]):
    """The valid rows, and the number of rows that were left out because of a blank cell."""

    lines: list[Line[RowT]]
    left_out: int


_PLAIN: Final = TableForm()


def read_rows(row: type[RowT], faults: Faults) -> list[Line[RowT]]:
    """Read a CSV with a header.

    Faults of rows go to `faults`; columns without a field in `row` are ignored.

    Raises:
        InvalidInput: no text, no header, or a column is missing: no row can be read.
    """
    return read_table(row, faults, _PLAIN).lines


def read_table(row: type[RowT], faults: Faults, form: TableForm) -> Table[RowT]:
    """Read a table of this form, as `read_rows` does."""
    text = read_text(faults.path, faults)
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=form.separator,
        skipinitialspace=form.separator == " ",
        strict=True,
    )
    return _Reader(row, faults, form, reader).table()


class _Reader(Generic[RowT]):
    def __init__(self, row: type[RowT], faults: Faults, form: TableForm, reader: Any) -> None:
        self._row, self._faults, self._form, self._reader = row, faults, form, reader
        self._fields = msgspec.structs.fields(row)
        self._left_out = 0

    def table(self) -> Table[RowT]:
        try:
            first: list[str] = next((cells for cells in self._reader if cells), [])
        except csv.Error as error:
            raise self._faults.fatal(f"is not CSV: {error}", line=1) from error
        if not first:
            raise self._faults.fatal("is empty; the first line must name the columns")
        names = [cell.strip() for cell in first]
        if not self._form.header:
            names = [str(number) for number, _ in zip(count(1), first, strict=False)]
        columns = self._columns(names, [cell.strip() for cell in first])
        before = [] if self._form.header else [first]
        lines = list(self._lines(chain(before, self._reader), columns, len(names)))
        return Table(lines, self._left_out)

    def _columns(
        self, names: list[str], first: list[str]
    ) -> list[tuple[msgspec.structs.FieldInfo, int]]:
        wanted = [each for each in self._fields if each.required or each.encode_name in names]
        missing = [each for each in wanted if each.encode_name not in names]
        if missing:
            self._refuse_other_form(names, first)
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise self._faults.fatal(f"the header has {', '.join(twice)} twice", line=1)
        for each in missing:
            self._faults.add(1, each.encode_name, f"is missing; there are {', '.join(names)}")
        self._faults.check()
        return [(each, names.index(each.encode_name)) for each in wanted]

    def _refuse_other_form(self, names: list[str], first: list[str]) -> None:
        """Raise if the table has another form than the given one and that explains the fault."""
        if len(first) == 1:
            for separator, written in _LIKELY.items():
                if separator in first[0]:
                    self._say(
                        f"its columns are separated by {_named(separator)}",
                        f"separator: {written}",
                        "write them with commas",
                    )
        if self._form.header and any(_is_number(cell) for cell in first):
            self._say(
                f"has no header: its first line is {_shown(self._form.separator.join(names))}",
                "header: false, and the columns by their numbers from 1",
                "the first line must name the columns",
            )

    def _say(self, what: str, in_mapping: str, otherwise: str) -> None:
        fix = f"say `{in_mapping}` in the mapping" if self._form.adjustable else otherwise
        raise self._faults.fatal(f"{what}; {fix}", line=1)

    def _lines(
        self,
        rows: Iterator[list[str]],
        columns: list[tuple[msgspec.structs.FieldInfo, int]],
        width: int,
    ) -> Iterator[Line[RowT]]:
        try:
            for cells in rows:
                if not cells:
                    continue
                number = self._reader.line_num
                if len(cells) != width:
                    self._faults.add(number, "", f"has {len(cells)} cells, the header {width}")
                    continue
                row = [(each, cells[index].strip()) for each, index in columns]
                blank = {each.name for each, cell in row if is_blank(cell)}
                if self._form.leave_out_blank and not blank <= self._form.blank.keys():
                    self._left_out += 1
                    continue
                values = self._values(row, blank, number)
                if values is not None:
                    yield Line(number, self._row(**values))
        except csv.Error as error:
            self._faults.add(self._reader.line_num, "", f"is not CSV: {error}")

    def _values(
        self,
        row: list[tuple[msgspec.structs.FieldInfo, str]],
        blank: Collection[str],
        line: int,
    ) -> dict[str, Any] | None:
        values, before = {}, len(self._faults)
        for each, cell in row:
            if each.name in blank and each.name in self._form.blank:
                values[each.name] = self._form.blank[each.name]
                continue
            try:
                values[each.name] = msgspec.convert(cell, each.type, strict=False)
            except msgspec.ValidationError as error:
                can_leave_out = each.name in blank and self._form.leave_out_blank is not None
                hint = BLANK_HINT if can_leave_out else ""
                message = f"{_shown(cell)}: {_message(error)}{hint}"
                self._faults.add(line, each.encode_name, message)
        return values if len(self._faults) == before else None


def is_blank(cell: str) -> bool:
    """Tell whether a cell means «no value»."""
    return cell.strip().casefold() in BLANK


def _named(separator: str) -> str:
    return {"\t": "tabs", ",": "commas"}.get(separator, repr(separator))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _shown(cell: str) -> str:
    return repr(cell if len(cell) <= _LONGEST else f"{cell[:_LONGEST]}…")


def _message(error: msgspec.ValidationError) -> str:
    """Return msgspec's message without the part that is true of every cell: that it is text."""
    message = str(error).removesuffix(", got `str`")
    return message[:1].lower() + message[1:]
