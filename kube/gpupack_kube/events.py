# SPDX-License-Identifier: Apache-2.0
"""An event about an object, as events.k8s.io/v1 wants it.

Its name ends with its time, as client-go's do: lists come in the order of names, and `kubectl
describe`, which sorts by a time that this API has no more, leaves that order alone.
"""

import datetime as dt
import logging
from typing import Literal, NamedTuple

from gpupack_kube import errors
from gpupack_kube.client import Api
from gpupack_kube.heartbeat import timestamp
from gpupack_kube.objects import Json, ObjectMeta
from gpupack_kube.resources import EVENTS

log = logging.getLogger(__name__)

NOTE_BYTES = 1024
"""What events.k8s.io/v1 takes, in UTF-8."""
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class About(NamedTuple):
    """The object that an event is about."""

    api_version: str
    kind: str
    meta: ObjectMeta


class Said(NamedTuple):
    """What happened."""

    type: Literal["Normal", "Warning"]
    reason: str
    note: str


class Reporter(NamedTuple):
    """Who says it: a controller, one pod of it, and what it was doing."""

    controller: str
    instance: str
    action: str


class EventWriter:
    """Writes events; they are for people, so a lost one is only logged."""

    def __init__(self, api: Api, reporter: Reporter) -> None:
        self._api, self._reporter = api, reporter
        self._written_at = EPOCH

    async def write(self, about: About, said: Said) -> None:
        """Write one."""
        body = event(about, said, now=self._next_moment(), reporter=self._reporter)
        try:
            await self._api.create(EVENTS, body, namespace=about.meta.namespace)
        except errors.KubeError as error:
            log.warning("cannot write an event about %s: %s", about.meta.name, error)

    def _next_moment(self) -> dt.datetime:
        """Now, but later than the last time: events of one moment would have no order."""
        moment = dt.timedelta(microseconds=1)
        self._written_at = max(self._api.clock.now(), self._written_at + moment)
        return self._written_at


def event(about: About, said: Said, *, now: dt.datetime, reporter: Reporter) -> Json:
    """One event. Of one object no two may be at the same time."""
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
    """As much of a text as an event takes, in whole characters."""
    text = note.encode()
    if len(text) <= NOTE_BYTES:
        return note
    end = "…"
    return text[: NOTE_BYTES - len(end.encode())].decode(errors="ignore") + end


def _nanoseconds(moment: dt.datetime) -> int:
    """Since 1970."""
    return (moment - EPOCH) // dt.timedelta(microseconds=1) * 1000
