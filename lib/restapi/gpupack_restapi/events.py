# SPDX-License-Identifier: Apache-2.0
"""The stream of changes."""

import datetime as dt
from typing import Literal

import msgspec

from gpupack_restapi.nodes import Sample, Utilization


class Event(msgspec.Struct, frozen=True):
    """One event; `data` is JSON."""

    event: Literal["cluster", "nodes", "jobs", "bye"]
    data: str


class ClusterFigures(msgspec.Struct, frozen=True):
    """The data of a `cluster` event: figures of `GET status`, and the last of `GET monitoring`."""

    utilization: Utilization
    total_nodes: int
    total_gpus: int
    available_gpus: int
    fragmentation: float
    timestamp: dt.datetime
    sample: Sample | None


class StreamEnd(msgspec.Struct, frozen=True):
    """The data of a `bye` event: the reason for the end of a stream.

    One of TokenExpired, RightsTaken, Stopping, Stale, TooSlow, Over, Unknown and TooManyNamespaces.
    """

    reason: str
    message: str
