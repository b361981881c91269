# SPDX-License-Identifier: Apache-2.0
"""What the agent and its process that asks the driver say to each other: lines of JSON."""

import msgspec

from gpupack_agent.inventory.base import Findings
from gpupack_agent.inventory.layout import Place


class Scan(msgspec.Struct, frozen=True, tag=True):
    """Look at the GPUs, but not at those of these indices: asking for them did not come back."""

    skip: tuple[int, ...] = ()


class Forget(msgspec.Struct, frozen=True, tag=True):
    """Let no error of the past count any more."""


class Cut(msgspec.Struct, frozen=True, tag=True):
    """Give the GPU of this UUID these MIG slices, and no others."""

    uuid: str
    places: tuple[Place, ...]


Request = Scan | Forget | Cut


class Reading(msgspec.Struct, frozen=True, tag=True):
    """The driver is asked for this GPU next; None: for nothing that is one GPU's."""

    index: int | None = None


class Found(msgspec.Struct, frozen=True, tag=True):
    """The answer to a Scan."""

    findings: Findings


class Done(msgspec.Struct, frozen=True, tag=True):
    """A Cut was done."""


class Unavailable(msgspec.Struct, frozen=True, tag=True):
    """There is no answer to a Scan, or a Cut was not done, for this reason."""

    message: str
    reason: str = ""


class Event(msgspec.Struct, frozen=True, tag=True):
    """The driver said that something happened: a scan may find something new."""


Reply = Reading | Found | Done | Unavailable | Event

REQUESTS = msgspec.json.Decoder(Request)
REPLIES = msgspec.json.Decoder(Reply)


def line(message: Request | Reply) -> bytes:
    """A message as it is sent; JSON has no line breaks but in strings, where they are escaped."""
    return msgspec.json.encode(message) + b"\n"
