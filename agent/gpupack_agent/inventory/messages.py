# SPDX-License-Identifier: Apache-2.0
"""The messages between the agent and its process that queries the driver: lines of JSON."""

import msgspec

from gpupack_agent.inventory.base import Findings
from gpupack_agent.inventory.layout import Place


class Scan(msgspec.Struct, frozen=True, tag=True):
    """The request to scan all GPUs except those of these indices, whose queries did not return."""

    skip: tuple[int, ...] = ()


class Forget(msgspec.Struct, frozen=True, tag=True):
    """The request to forget all past errors."""


class Partition(msgspec.Struct, frozen=True, tag=True):
    """The request to give the GPU of this UUID these MIG slices, and no others."""

    uuid: str
    places: tuple[Place, ...]


Request = Scan | Forget | Partition


class Reading(msgspec.Struct, frozen=True, tag=True):
    """The message that the next driver call concerns this GPU; None: it concerns no single GPU."""

    index: int | None = None


class Found(msgspec.Struct, frozen=True, tag=True):
    """The answer to a Scan."""

    findings: Findings


class Done(msgspec.Struct, frozen=True, tag=True):
    """The answer to a Cut that succeeded."""


class Unavailable(msgspec.Struct, frozen=True, tag=True):
    """The answer to a Scan or a Cut that failed, with the reason."""

    message: str
    reason: str = ""


class Event(msgspec.Struct, frozen=True, tag=True):
    """The message that the driver raised an event, so that a scan may find something new."""


Reply = Reading | Found | Done | Unavailable | Event

REQUESTS = msgspec.json.Decoder(Request)
REPLIES = msgspec.json.Decoder(Reply)


def line(message: Request | Reply) -> bytes:
    """Encode a message as one line; in JSON, line breaks within strings are escaped."""
    return msgspec.json.encode(message) + b"\n"
