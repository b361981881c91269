# SPDX-License-Identifier: Apache-2.0
"""The result of a workload, in its container's termination message.

    {"schema": "gpupack.dev/result/v1", "workload": "matmul", "headline": "0.12 TFLOP/s",
     "verified": true, "simulated": true, "metrics": {"tflops": 0.12}}

Only `schema` is required. Keys other than these are not kept. Whole numbers have at most 64 bits,
since the API server refuses a status with longer ones. docs/results.md describes the format for
users.
"""

from typing import Annotated, Literal

import msgspec

from gpupack_crds.errors import ResultUnreadable
from gpupack_crds.wire import Wire

SCHEMA = "gpupack.dev/result/v1"
SCHEMA_FAMILY = "gpupack.dev/result/"
SHOWN_CHARACTERS = 80

Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Scalar = str | Integer | float | bool


class Communication(Wire, frozen=True, rename=None):
    """How the processes of a gang reach one another, as a built-in workload measured it."""

    transport: Annotated[
        str,
        msgspec.Meta(
            description="What NCCL chose for this worker, the slowest first, such as "
            "NET/Socket,P2P/CUMEM; tcp with gloo. Empty: unknown.",
            max_length=64,
        ),
    ] = ""
    bus_gb_per_s: Annotated[
        float, msgspec.Meta(description="Bus bandwidth of a short all-reduce of the gang.", ge=0)
    ] = 0.0


class Result(Wire, frozen=True):
    """One worker's result."""

    schema: Literal["gpupack.dev/result/v1"]
    workload: Annotated[str, msgspec.Meta(max_length=64)] = ""
    headline: Annotated[str, msgspec.Meta(max_length=64)] = ""
    verified: bool | None = None
    simulated: bool | None = None
    metrics: dict[str, Scalar] = {}
    communication: Communication | None = None


def looks_like_result(termination_message: str) -> bool:
    """Return whether a message was meant to be a result, readable or not, and not text or a log."""
    return termination_message.lstrip().startswith("{") and SCHEMA_FAMILY in termination_message


def read_result(termination_message: str) -> Result | None:
    """Parse a termination message; None where the container wrote none.

    Raises:
        ResultUnreadable: it is not a result; the error shows its beginning.
    """
    if not termination_message.strip():
        return None
    try:
        return msgspec.json.decode(termination_message, type=Result)
    except (msgspec.MsgspecError, RecursionError) as error:
        shown = termination_message[:SHOWN_CHARACTERS]
        raise ResultUnreadable(
            f"termination message {shown!r} is not a result of schema {SCHEMA}: {_in_words(error)}"
        ) from error


def _in_words(error: Exception) -> str:
    """Return what is wrong with a message, without the parser's own form."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if not isinstance(error, msgspec.ValidationError):
        return "it is not valid JSON; write one JSON object, or nothing"
    what, _, field = str(error).replace("`", "").partition(" - at $")
    return f"{field.removeprefix('.')}: {what}" if field else what
