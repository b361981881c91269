# SPDX-License-Identifier: Apache-2.0
"""An event about a GPUJob, as events.k8s.io/v1 wants it."""

import datetime as dt
import uuid

from gpupack_crds import names
from gpupack_crds.kinds import GpuJob
from gpupack_kube.heartbeat import timestamp
from gpupack_kube.objects import Json
from gpupack_operator.decision.conditions import clipped
from gpupack_operator.decision.notices import Notice

CONTROLLER = f"{names.GROUP}/operator"
NOTE_CHARACTERS = 1000


def event(job: GpuJob, notice: Notice, *, now: dt.datetime, reporter: str) -> Json:
    """One event; `reporter` is the operator's pod."""
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": f"{job.metadata.name}.{uuid.uuid4().hex[:16]}",
            "namespace": job.metadata.namespace,
        },
        "eventTime": timestamp(now),
        "type": notice.type,
        "reason": str(notice.reason),
        "note": clipped(notice.note, NOTE_CHARACTERS),
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
