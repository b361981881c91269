# SPDX-License-Identifier: Apache-2.0
"""Events about an object, in the form of events.k8s.io/v1.

An event's name ends with its time, as client-go's do. Lists come in the order of names. `kubectl
describe` sorts by a time that this API no longer has, and so keeps that order.
"""

import datetime as dt
import logging
from typing import Literal, NamedTuple

from gpupack_kubeclient import errors
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.heartbeat import timestamp
from gpupack_kubeclient.objects import Json, ObjectMeta
from gpupack_kubeclient.resources import EVENTS

log = logging.getLogger(__name__)

NOTE_BYTES = 1024
"""Limit of events.k8s.io/v1, in bytes of UTF-8."""
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class About(NamedTuple):
    """The object that an event is about."""

    api_version: str
    kind: str
    meta: ObjectMeta


class Said(NamedTuple):
    """The content of an event: type, reason and note."""

    type: Literal["Normal", "Warning"]
    reason: str
    note: str


class Reporter(NamedTuple):
    """Source of an event: a controller, one pod of it, and its action."""

    controller: str
    instance: str
    action: str


class EventWriter:
    """A writer of events. Events are for users, so a lost one is only logged."""

    def __init__(self, api: Api, reporter: Reporter) -> None:
        self._api, self._reporter = api, reporter
        self._written_at = EPOCH

    async def write(self, about: About, said: Said) -> None:
        """Write one event."""
        body = event(about, said, now=self._next_moment(), reporter=self._reporter)
        try:
            await self._api.create(EVENTS, body, namespace=about.meta.namespace)
        except errors.KubeError as error:
            log.warning("cannot write an event about %s: %s", about.meta.name, error)

    def _next_moment(self) -> dt.datetime:
        """Return now, but later than the last time: events of one time would have no order."""
        moment = dt.timedelta(microseconds=1)
        self._written_at = max(self._api.clock.now(), self._written_at + moment)
        return self._written_at


def event(about: About, said: Said, *, now: dt.datetime, reporter: Reporter) -> Json:
    """Return one event. No two events about one object may have the same time."""
    meta = about.meta
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{meta.name}.{_nanoseconds(now):016x}", "namespace": meta.namespace},
        "eventTime": timestamp(now),
        "type": said.type,
        "reason": said.reason,
        "note": _clipped(said.note),
        "action": reporter.action,
        "reportingController": reporter.controller,
        "reportingInstance": reporter.instance,
        "regarding": {
            "apiVersion": about.api_version,
            "kind": about.kind,
            "namespace": meta.namespace,
            "name": meta.name,
            "uid": meta.uid,
        },
    }


def _clipped(note: str) -> str:
    """Return as much of a text as an event takes, in whole characters."""
    text = note.encode()
    if len(text) <= NOTE_BYTES:
        return note
    end = "…"
    return text[: NOTE_BYTES - len(end.encode())].decode(errors="ignore") + end


def _nanoseconds(moment: dt.datetime) -> int:
    """Return nanoseconds since 1970."""
    return (moment - EPOCH) // dt.timedelta(microseconds=1) * 1000
