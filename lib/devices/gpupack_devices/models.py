# SPDX-License-Identifier: Apache-2.0
"""Matching of GPU models against the names that users write.

    A100-80GB      family a100, 80 GB        «NVIDIA A100-SXM4-80GB», «NVIDIA A100 80GB PCIe»
    h100 sxm       family h100, form sxm     «NVIDIA H100 80GB HBM3»: the driver names no SXM there
    mi300x 192gb   family mi300x, 192 GB     «AMD Instinct MI300X OAM» of 196592 MiB
    NVIDIA H200    family nvidia h200        «NVIDIA H200», «NVIDIA H200 NVL»

A family is a run of whole words of the product name: A10 does not match A100, V100 does not match
V100S. Memory is the data sheet's; a GPU shows a little less. If a GPU's own memory is unknown, the
size in its product name counts.

A table of every product was rejected: it would be out of date with the next product, and a name
that it lacks would be refused although the cluster has it.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Final

from gpupack_devices.errors import InvalidRequest
from gpupack_devices.units import MiB, memory_text

_SEPARATORS = re.compile(r"[\s\-_/,()]+")
_MEMORY = re.compile(r"(\d{1,4})(?:g|gb|gib)")
_UNITS: Final = ("g", "gb", "gib")
_FORM = re.compile(r"sxm\d?|pcie|nvl|oam")
_JOINED_FORM = re.compile(r"(.*\d.*?)(sxm\d?|pcie)")
"""Pattern of a word such as h100sxm5."""

_UNNAMED_FORMS: Final = {
    "h100": ("sxm", "sxm5"),
    "h800": ("sxm", "sxm5"),
    "h200": ("sxm", "sxm5"),
    "b200": ("sxm",),
    "b300": ("sxm",),
}
"""Forms of boards that NVIDIA's driver names without a form; it names those of others (PCIe,
NVL)."""

_MIN_MEMORY_RATIO, _MAX_MEMORY_RATIO = 0.92, 1.04
"""Bounds of the memory that a GPU shows, by GiB of its data sheet: some sheets count in 10⁹ bytes,
and ECC takes a part."""
_MIB_PER_GIB = 1024

_RESOURCE = re.compile(r"([a-z0-9-]+(?:\.[a-z0-9-]+)+/[A-Za-z0-9._-]+)(?:\s*[:=]\s*(\d+))?")
_COUNT_FIRST = re.compile(r"(\d{1,4})\s*[x\u00d7*]\s*(\S.*)", re.IGNORECASE)
_COUNT_LAST = re.compile(r"(\S.*?)(?:\s+[x\u00d7]\s*|\s*[:=*]\s*)(\d{1,4})", re.IGNORECASE)

MAX_NEAREST = 3
"""Number of models that a refusal names."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A model as a user requested it.

    Attributes:
        family: words of the product name, in order; empty: any.
        marks: other words that the product name must have, such as pcie.
        memory: memory of the data sheet, in GB; None: any.
    """

    family: tuple[str, ...]
    marks: tuple[str, ...] = ()
    memory: int | None = None


def require_model(text: str) -> None:
    """Check that the text names a model, not a number of GPUs or a resource.

    Raises:
        InvalidRequest: it does not; the message says what to write instead.
    """
    asked = text.strip()
    if found := _RESOURCE.fullmatch(asked):
        resource, count = found.groups()
        instead = f"resourceName: {resource}" + (f" and gpus: {count}" if count else "")
        raise InvalidRequest(f"{text!r} is a resource and no model of a GPU; write {instead}")
    if found := _COUNT_FIRST.fullmatch(asked):
        count, model = found.groups()
    elif found := _COUNT_LAST.fullmatch(asked):
        model, count = found.groups()
    elif any(map(str.isalnum, asked)):
        return
    else:
        raise InvalidRequest(f"{text!r} names no model of a GPU; write one such as A100-80GB")
    raise InvalidRequest(
        f"{text!r} is a model with a count; write {model!r} and, for each worker, gpus: {count}"
    )


@lru_cache(maxsize=4096)
def parse_model(text: str) -> ModelRequest:
    """Parse a model; any text with a word is valid."""
    family, marks, sizes = [], [], []
    for word in _spelled(words(text)):
        if _MEMORY.fullmatch(word):
            sizes.append(word)
        elif _FORM.fullmatch(word):
            marks.append(word)
        else:
            family.append(word)
    # «GH200 480GB» names the memory of its CPU: the last size is that of the GPU.
    return ModelRequest(
        tuple(family), (*marks, *sizes[:-1]), _gigabytes(sizes[-1]) if sizes else None
    )


@lru_cache(maxsize=16384)
def matches_model(asked: str, model: str, memory: MiB | None = None) -> bool:
    """Tell whether a GPU of this product name and memory is of the requested model.

    A name matches if it is a run of whole words of the product name, in any case. Without the GPU's
    memory the product name has to contain the requested size.

    >>> matches_model("h100", "NVIDIA H100 80GB HBM3"), matches_model("A10", "NVIDIA-A100-SXM4")
    (True, False) >>> matches_model("A100-80GB", "NVIDIA A100-SXM4-80GB"), matches_model("V100",
    "Tesla V100S") (True, False)
    """
    wanted, tokens = words(asked), words(model)
    if not wanted:
        return False
    if _has_run(wanted, tokens):
        return True
    ask = parse_model(asked)
    return _names(ask, tokens) and (
        ask.memory is None or _is_of_size(ask.memory, _sizes(tokens), memory)
    )


def may_match(asked: str, model: str) -> bool:
    """Tell whether GPUs of this product name can match the request, with some memory size."""
    if matches_model(asked, model):
        return True
    tokens = words(model)
    return bool(words(asked)) and not _sizes(tokens) and _names(parse_model(asked), tokens)


def names_memory(model: str) -> bool:
    """Tell whether a product name contains a memory size."""
    return bool(_sizes(words(model)))


def common_model(asked: str, model: str) -> str | None:
    """Return a model name that matches GPUs of both the request and this product; None: none do."""
    if matches_model(asked, model):
        return model
    return f"{model} {parse_model(asked).memory}GB" if may_match(asked, model) else None


def nearest_models(asked: Iterable[str], there: Iterable[tuple[str, MiB]]) -> tuple[str, ...]:
    """Return the few of these GPUs that are most like the requested ones, each with its memory."""
    families = ["".join(parse_model(each).family) for each in asked]

    def unlike(kind: tuple[str, MiB]) -> tuple[float, str, MiB]:
        model, memory = kind
        return -max((_likeness(each, model) for each in families), default=0.0), model, memory

    nearest = sorted(set(there), key=unlike)[:MAX_NEAREST]
    return tuple(_sized(model, memory) for model, memory in nearest)


def words(name: str) -> list[str]:
    """Split a name into the words that are compared: «NVIDIA-A100_80GB» has three."""
    return [token for token in _SEPARATORS.split(name.casefold()) if token]


def _spelled(tokens: Sequence[str]) -> list[str]:
    """Split words as product names do: «80 gb» becomes one, «h100sxm5» becomes two."""
    found: list[str] = []
    for token in tokens:
        if token in _UNITS and found and found[-1].isdigit():
            found[-1] += token
        elif joined := _JOINED_FORM.fullmatch(token):
            found += joined.groups()
        else:
            found.append(token)
    return found


def _names(ask: ModelRequest, tokens: list[str]) -> bool:
    """Tell whether a product name of these words is of the family and has the marks."""
    plain = [word for word in tokens if not _is_mark(word)]
    family = "".join(ask.family)
    is_family = not family or family in _runs(plain)
    return is_family and all(_has_mark(mark, tokens) for mark in ask.marks)


def _has_mark(mark: str, tokens: Sequence[str]) -> bool:
    forms = [word for word in tokens if _FORM.fullmatch(word)]
    if mark in tokens or (mark == "sxm" and any(form.startswith(mark) for form in forms)):
        return True
    return not forms and any(mark in _UNNAMED_FORMS.get(word, ()) for word in tokens)


def _is_of_size(gigabytes: int, named: Sequence[int], memory: MiB | None) -> bool:
    """Tell whether the memory size matches; `memory` of 1 MiB means that it is unknown."""
    if memory is None or memory <= 1:
        return gigabytes in named
    return (
        _MIN_MEMORY_RATIO <= memory / (gigabytes * _MIB_PER_GIB) <= _MAX_MEMORY_RATIO
        if gigabytes
        else False
    )


def _sizes(tokens: Iterable[str]) -> list[int]:
    return [_gigabytes(word) for word in tokens if _MEMORY.fullmatch(word)]


def _gigabytes(word: str) -> int:
    return int(word.rstrip("gib"))


def _is_mark(word: str) -> bool:
    return bool(_FORM.fullmatch(word) or _MEMORY.fullmatch(word))


def _has_run(wanted: Sequence[str], tokens: Sequence[str]) -> bool:
    starts = range(len(tokens) - len(wanted) + 1)
    return any(list(tokens[start : start + len(wanted)]) == list(wanted) for start in starts)


def _runs(tokens: Sequence[str]) -> set[str]:
    """Return every run of words, joined: «RTX 4090» and «RTX4090» are the same."""
    ends = range(1, len(tokens) + 1)
    return {"".join(tokens[start:end]) for end in ends for start in range(end)}


@lru_cache(maxsize=4096)
def _likeness(family: str, model: str) -> float:
    """Return the similarity, from 0 to 1, of the most similar run of words."""
    runs = _runs([word for word in words(model) if not _is_mark(word)])
    return max((SequenceMatcher(None, family, run).ratio() for run in runs), default=0.0)


def _sized(model: str, memory: MiB) -> str:
    return f"{model} ({memory_text(memory)})" if memory > 1 else model
