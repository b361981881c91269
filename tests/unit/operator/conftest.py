# SPDX-License-Identifier: Apache-2.0
"""Builders of API objects with chosen times."""

import datetime as dt
import types

import msgspec
import pytest
from fake_api import ApiServer, connected

from gpupack_crds import names
from gpupack_crds.devices import DeviceShare
from gpupack_crds.gpujob_status import GpuJobStatus
from gpupack_crds.kinds import GpuJob
from gpupack_crds.placement import WorkerPlacement, by_node
from gpupack_kubeclient.objects import Job, Pod
from gpupack_operator.decision.decide import decide
from gpupack_operator.decision.model import Observation, Plan, WaitMessage

START = dt.datetime(2026, 11, 21, 12, 0, 0, tzinfo=dt.UTC)
UID = "uid-of-train"


def at(seconds):
    """Return the time this number of seconds after the job was admitted."""
    return START + dt.timedelta(seconds=seconds)


def stamp(seconds):
    return at(seconds).isoformat().replace("+00:00", "Z")


def gpujob(*, status=None, deleted=None, generation=1, **spec):
    meta = {
        "name": "train",
        "namespace": "team",
        "uid": UID,
        "resourceVersion": "7",
        "generation": generation,
        "creationTimestamp": stamp(-1),
    }
    if deleted is not None:
        meta["deletionTimestamp"] = stamp(deleted)
    job = msgspec.convert(
        {"metadata": meta, "spec": spec if "share" in spec else {"gpus": 1, **spec}}, GpuJob
    )
    return msgspec.structs.replace(job, status=status or GpuJobStatus())


def placement(*nodes):
    """Make a placement with one worker on each named node."""
    device = DeviceShare(uuid="GPU-1", percent=100, memory_mib=80000)
    return by_node(WorkerPlacement(i, node, (device,)) for i, node in enumerate(nodes))


def owned_by(kind, name, uid):
    return {"kind": kind, "name": name, "uid": uid, "controller": True}


def job(*, attempt=1, conditions=(), deleted=None, suspend=False, deadline=None, started=0):
    meta = {
        "name": f"train-{attempt}",
        "namespace": "team",
        "uid": f"uid-of-train-{attempt}",
        "labels": {names.JOB_UID_LABEL: UID, names.ATTEMPT_LABEL: str(attempt)},
        "ownerReferences": [owned_by("GPUJob", "train", UID)],
    }
    if deleted is not None:
        meta["deletionTimestamp"] = stamp(deleted)
    found = [
        {"type": kind, "status": "True", "lastTransitionTime": stamp(when)}
        for kind, when in conditions
    ]
    spec = {"suspend": suspend} | ({} if deadline is None else {"activeDeadlineSeconds": deadline})
    status = {"conditions": found} | ({} if started is None else {"startTime": stamp(started)})
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, Job)


def pod(
    index=0,
    *,
    attempt=1,
    phase="Running",
    node="a",
    bound=1,
    exit_code=None,
    ended=None,
    container_reason="Error",
    container="worker",
    message="",
    waiting=None,
    said="because",
    deleted=None,
    disrupted=None,
    reason="",
    created=0,
    limits=None,
    scheduler=names.SCHEDULER_NAME,
):
    """A worker pod of one GPU; `deleted` is when its deletion was requested, with 30 s of grace."""
    labels = {names.ATTEMPT_LABEL: str(attempt), names.INDEX_LABEL: str(index)}
    meta = {
        "name": f"train-{attempt}-{index}-x",
        "namespace": "team",
        "uid": f"pod-{attempt}-{index}",
        "creationTimestamp": stamp(created),
        "labels": labels,
        "ownerReferences": [owned_by("Job", f"train-{attempt}", f"uid-of-train-{attempt}")],
    }
    if deleted is not None:
        meta |= {"deletionTimestamp": stamp(deleted + 30), "deletionGracePeriodSeconds": 30}
    conditions = []
    if node:
        conditions.append(
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(bound)}
        )
    if disrupted:
        when, why = disrupted
        conditions.append(
            {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": why,
                "lastTransitionTime": stamp(when),
            }
        )
    state = {}
    if exit_code is not None:
        state["terminated"] = {
            "exitCode": exit_code,
            "reason": container_reason,
            "message": message,
            "finishedAt": stamp(ended or 0),
        }
    if waiting:
        state["waiting"] = {"reason": waiting, "message": said}
    statuses = [{"name": container, "state": state}] if state else []
    body = {
        "metadata": meta,
        "spec": {
            "nodeName": node,
            "schedulerName": scheduler,
            "containers": [
                {
                    "name": container,
                    "resources": {"limits": {names.GPU: "1"} if limits is None else limits},
                }
            ],
        },
        "status": {
            "phase": phase,
            "reason": reason,
            "conditions": conditions,
            "containerStatuses": statuses,
        },
    }
    return msgspec.convert(body, Pod)


def see(
    gpujob_,
    *,
    jobs=(),
    pods=(),
    now=10,
    answer=None,
    request_failures=0,
    wait_message=None,
    silent_nodes=(),
    next_request_at=None,
    provisioning=None,
    nodes=None,
):
    return Observation(
        job=gpujob_,
        jobs=tuple(jobs),
        pods=tuple(pods),
        now=at(now),
        answer=answer,
        request_failures=request_failures,
        next_request_at=next_request_at,
        silent_nodes=frozenset(silent_nodes),
        provisioning=provisioning,
        nodes=nodes,
        wait_message=WaitMessage(at(wait_message))
        if isinstance(wait_message, int)
        else wait_message,
    )


def admitted(*, nodes=("a",), now=0, **spec):
    """A GPUJob whose first attempt was admitted at `now`."""
    fresh = gpujob(workers=len(nodes), **spec)
    shares = fresh.spec.may_share_pods and fresh.spec.pod_per_worker is False
    plan = Plan(placement(*nodes), seconds=9, shares_pods=shares)
    decision = decide(see(fresh, answer=plan, now=now))
    return msgspec.structs.replace(fresh, status=decision.status)


def after(job_, decision):
    """The GPUJob with the status that was decided."""
    return msgspec.structs.replace(job_, status=decision.status)


@pytest.fixture
def build():
    return types.SimpleNamespace(
        UID=UID,
        admitted=admitted,
        after=after,
        at=at,
        gpujob=gpujob,
        job=job,
        placement=placement,
        pod=pod,
        see=see,
        stamp=stamp,
    )


@pytest.fixture
async def server():
    """An API server in memory, on loopback; `server.api` is connected to it."""
    found = ApiServer()
    async with connected(found.app()) as (found.api, _):
        yield found
