# SPDX-License-Identifier: Apache-2.0
"""Result of a workload: schema gpupack.dev/result/v1, described in docs/results.md.

The kubelet keeps 4096 bytes of a termination message, and less where a pod has more than three
containers: `GPUPACK_RESULT_BYTES` says how many. A longer result would be cut in the middle and be
no JSON any more. So `encode` leaves out the rows, then metrics from the end until the result fits,
and counts them; the workloads name the important ones first. `in_full` is for standard output,
whatever its length.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

logger = logging.getLogger(__name__)

SCHEMA = "gpupack.dev/result/v1"
MESSAGE_BYTES = 4096
"""Maximum size of a termination message that the kubelet reads."""
BYTES_VARIABLE = "GPUPACK_RESULT_BYTES"
LEFT_OUT = "metrics_left_out"
"""Metric with the number of metrics that did not fit."""
OPTIONAL_KEYS = ("metrics", "workload", "headline", "communication", "simulated", "verified")
"""Optional keys of a result, in the order in which they are left out."""
HEADLINE_CHARACTERS = 64
USUAL_PATH = Path("/dev/termination-log")

Scalar = str | int | float | bool


class Communication(msgspec.Struct, frozen=True, kw_only=True):
    """Communication between the processes of a gang.

    Attributes:
        transport: what NCCL chose for the first process of this worker: P2P/CUMEM, SHM, NET/Socket,
            NET/IB and the like, the slowest first, joined by commas; tcp with gloo. Empty: unknown.
        bus_gb_per_s: bus bandwidth of a short all-reduce of the whole gang.
    """

    transport: str
    bus_gb_per_s: float


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One worker's result.

    Attributes:
        headline: the one figure to show in a table, with its unit.
        verified: whether what was computed agreed with an independent reference.
        simulated: whether no GPU was there, so that times say nothing about one.
        metrics: figures by name; names end with their unit.
        rows: a table of figures, one row per size or kind, if one figure is not enough.
        communication: communication of a gang with several processes.
    """

    schema: str = SCHEMA
    workload: str
    headline: str
    verified: bool
    simulated: bool
    metrics: dict[str, Scalar]
    rows: list[dict[str, Scalar]] = []
    communication: Communication | None = None

    def __post_init__(self) -> None:
        """Refuse a headline that is too long for a table."""
        if len(self.headline) > HEADLINE_CHARACTERS:
            raise ValueError(f"headline {self.headline!r} is over {HEADLINE_CHARACTERS} characters")


def headline(figure: str, *, simulated: bool) -> str:
    """Mark a figure that was not measured on a GPU."""
    return f"{figure} (simulated)" if simulated else figure


def encode(result: Result, limit_bytes: int = MESSAGE_BYTES) -> bytes:
    """Write a result as JSON that fits into a termination message.

    Args:
        result: the result.
        limit_bytes: maximum size that the kubelet keeps.

    Returns:
        The JSON; without some metrics, and with their number, where there is no space for all. At
        the least the schema alone, whatever the limit.
    """
    fields = _fields(result)
    del fields["rows"]
    kept = list(fields["metrics"].items())
    total = len(kept)
    while len(text := msgspec.json.encode(fields)) > limit_bytes and kept:
        kept.pop()
        fields["metrics"] = {**dict(kept), LEFT_OUT: total - len(kept)}
    for key in OPTIONAL_KEYS:
        if len(text) <= limit_bytes:
            break
        fields.pop(key, None)
        text = msgspec.json.encode(fields)
    return text


def in_full(result: Result) -> bytes:
    """Write a result as JSON, whatever its length."""
    return msgspec.json.encode(_fields(result))


def _fields(result: Result) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(result)
    if result.communication is None:
        del fields["communication"]
    return fields


def report(result: Result, path: Path | None, limit_bytes: int = MESSAGE_BYTES) -> None:
    """Write a result to the termination message; a run outside a pod has none."""
    if path is None:
        return
    try:
        path.write_bytes(encode(result, limit_bytes))
    except OSError as error:
        logger.warning("the result could not be written to %s: %s", path, error)


def result_path(environ: Mapping[str, str]) -> Path | None:
    """Return the termination message's file: the operator's setting, or Kubernetes' default."""
    named = environ.get("GPUPACK_RESULT_PATH")
    if named:
        return Path(named)
    return USUAL_PATH if USUAL_PATH.exists() else None


def result_bytes(environ: Mapping[str, str]) -> int:
    """Return how many bytes of a result the kubelet keeps, as set by the operator."""
    text = environ.get(BYTES_VARIABLE) or str(MESSAGE_BYTES)
    try:
        return min(int(text), MESSAGE_BYTES)
    except ValueError:
        logger.warning("%s is %r, no whole number; using %d", BYTES_VARIABLE, text, MESSAGE_BYTES)
        return MESSAGE_BYTES
