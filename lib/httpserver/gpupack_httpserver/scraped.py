# SPDX-License-Identifier: Apache-2.0
"""A reader of the GPU metrics of DCGM exporter or an agent, with prometheus_client's parser.

The parser gets only the lines of wanted fields, so that lines, their length and their number limit
the work that a hostile server can cause. A line that cannot be read affects no other line.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

MAX_LINES: Final = 16_384
"""Maximum lines of wanted fields: 128 GPUs with all fields each, and some slices."""

LINE_CHARACTERS: Final = 4_096
"""Maximum length of a series with its labels; DCGM exporter's have some 500, with a pod's names."""

SLICE_LABEL: Final = "GPU_I_ID"
"""Label of a MIG slice's series, which says nothing about the whole GPU."""

BLANKS: Final = (2147483632.0, 140737488355328.0, 9223372036854775792.0)
"""Blank values.

Without a value DCGM writes one of these or up to 15 more, by type (dcgm_structs.h:
DCGM_INT32_BLANK, DCGM_FP64_BLANK, DCGM_INT64_BLANK). The exporter should leave those out.
"""
BLANK_KINDS: Final = 15


Figures = Mapping[str, Mapping[str, float]]
"""Values by GPU and field."""


def figures(text: str, wanted: Collection[str]) -> Figures:
    """Return the values of whole GPUs.

    A GPU that several pods share has the same value once for each of them. The largest counts, so
    the worst of error counters.
    """
    found: dict[str, dict[str, float]] = {}
    for line in _lines(text, wanted):
        for name, uuid, value in _samples(line):
            of_gpu = found.setdefault(uuid, {})
            of_gpu[name] = max(value, of_gpu.get(name, value))
    return found


def _lines(text: str, wanted: Collection[str]) -> Iterator[str]:
    """Yield the lines of wanted fields, without comments: the parser does not need types here."""
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
        if uuid and not sample.labels.get(SLICE_LABEL) and _is_present(value):
            yield sample.name, uuid, value


def _is_present(value: float) -> bool:
    if not math.isfinite(value) or value < 0:
        return False
    return not any(blank <= value <= blank + BLANK_KINDS for blank in BLANKS)
