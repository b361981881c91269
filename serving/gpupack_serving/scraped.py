# SPDX-License-Identifier: Apache-2.0
"""Reads what DCGM exporter or an agent shows of GPUs: by prometheus_client's own parser.

The parser is handed the lines of fields that are wanted and no others, so what a hostile server
may make it work on is bounded by lines, their length and their number. A line that cannot be read
spoils itself alone.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

MAX_LINES: Final = 16_384
"""Of wanted fields: 128 GPUs with as many fields each as there are, and some slices."""

LINE_CHARACTERS: Final = 4_096
"""Of one series with its labels; DCGM exporter's have some 500, with a pod's names."""

SLICE_LABEL: Final = "GPU_I_ID"
"""Of a MIG slice's series, which says nothing about the whole GPU."""

BLANKS: Final = (2147483632.0, 140737488355328.0, 9223372036854775792.0)
"""Where DCGM has no value it writes one of these or up to 15 more, by type (dcgm_structs.h:
DCGM_INT32_BLANK, DCGM_FP64_BLANK, DCGM_INT64_BLANK); the exporter should leave those out."""
BLANK_KINDS: Final = 15


Figures = Mapping[str, Mapping[str, float]]
"""By GPU and field."""


def figures(text: str, wanted: Collection[str]) -> Figures:
    """What is told of whole GPUs.

    A GPU that several pods share has the same figure once for each of them: the largest counts, so
    of error counters the worst.
    """
    found: dict[str, dict[str, float]] = {}
    for line in _lines(text, wanted):
        for name, uuid, value in _samples(line):
            of_gpu = found.setdefault(uuid, {})
            of_gpu[name] = max(value, of_gpu.get(name, value))
    return found


def _lines(text: str, wanted: Collection[str]) -> Iterator[str]:
    """Without comments: of types the parser needs to know nothing here."""
    names, left = frozenset(wanted), MAX_LINES
    for line in text.splitlines():
        name = line[:LINE_CHARACTERS].partition("{")[0]
        if name in names and len(line) <= LINE_CHARACTERS:
            if not left:
                return
            left -= 1
            yield line


def _samples(line: str) -> Iterator[tuple[str, str, float]]:
    try:
        families = list(text_string_to_metric_families(line + "\n"))
    except (ValueError, KeyError, IndexError):
        return
    for sample in (sample for family in families for sample in family.samples):
        uuid, value = sample.labels.get("UUID", ""), float(sample.value)
        if uuid and not sample.labels.get(SLICE_LABEL) and _is_told(value):
            yield sample.name, uuid, value


def _is_told(value: float) -> bool:
    if not math.isfinite(value) or value < 0:
        return False
    return not any(blank <= value <= blank + BLANK_KINDS for blank in BLANKS)
