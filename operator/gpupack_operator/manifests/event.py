# SPDX-License-Identifier: Apache-2.0
"""An event about a GPUJob, as events.k8s.io/v1 wants it.

Its name ends with its time, as client-go's do: lists come in the order of names, and `kubectl
describe`, which sorts by a time that this API has no more, leaves that order alone.
"""

import datetime as dt

from gpupack_crds import names
from gpupack_crds.kinds import GpuJob
from gpupack_kube.heartbeat import timestamp
from gpupack_kube.objects import Json
from gpupack_operator.decision.notices import Notice

CONTROLLER = f"{names.GROUP}/operator"
NOTE_BYTES = 1024
"""What events.k8s.io/v1 takes, in UTF-8."""
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def event(job: GpuJob, notice: Notice, *, now: dt.datetime, reporter: str) -> Json:
    """One event; `reporter` is the operator's pod. Of one job no two may be at the same time."""
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": f"{job.metadata.name}.{_nanoseconds(now):016x}",
            "namespace": job.metadata.namespace,
        },
        "eventTime": timestamp(now),
        "type": notice.type,
        "reason": str(notice.reason),
        "note": _clipped(notice.note),
        "action": "Reconcile",
        "reportingController": CONTROLLER,
        "reportingInstance": reporter,
        "regarding": {
            "apiVersion": names.API_VERSION,
            "kind": "GPUJob",
            "namespace": job.metadata.namespace,
            "name": job.metadata.name,
            "uid": job.metadata.uid,
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
