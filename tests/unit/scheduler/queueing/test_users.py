# SPDX-License-Identifier: Apache-2.0
"""Users that created GPUJobs and pods, in the queue."""

import msgspec
import pytest
from extender_builders import gated, job, pod, whole

from gpupack_crds.kinds import GpuQuota
from gpupack_scheduler.queueing.pending.request import pod_id

CREATED_BY = "gpupack.dev/created-by"


def users_take_turns(world):
    meta = {"name": "default", "namespace": "team"}
    spec = {"jobOrder": "UserFairShare", "gpus": []}
    world.quotas.quotas.upsert(msgspec.convert({"metadata": meta, "spec": spec}, GpuQuota))


def by(user):
    return {"annotations": {CREATED_BY: user}}


@pytest.mark.parametrize(("written", "user"), [("ann", "ann"), ("x" * 513, "")])
def test_the_user_of_a_running_gpujob_is_in_its_annotation(world, written, user):
    shown = job("train", attempt=1, phase="Running", placed=[("a", [0])])
    body = msgspec.to_builtins(shown)
    body["metadata"] |= by(written)
    world.ledger.jobs.upsert(msgspec.convert(body, type(shown)))
    world.decide()
    (running,) = world.owner.queue.state.running
    assert running.job.user == user


def test_the_user_of_a_running_pod_is_in_its_annotation(world):
    shown = pod("notebook", on="a", devices=whole("a", 0))
    built = msgspec.to_builtins(shown)
    built["metadata"]["annotations"] |= {CREATED_BY: "ann"}
    world.ledger.pods.upsert(msgspec.convert(built, type(shown)))
    world.decide()
    (running,) = world.owner.queue.state.running
    assert running.job.user == "ann"


def test_pending_jobs_and_pods_are_ordered_by_the_usage_of_their_users(world):
    users_take_turns(world)
    world.asks("holder", workers=2, gpus=4, created_by="ann")
    world.written("holder")
    world.asks("late", gpus=1, created_by="ann")
    world.ledger.pods.upsert(gated("notebook", **by("bob")))
    world.decide()
    first, second = world.owner.queue.ordered_ids()
    assert (first, second.startswith("uid-late")) == (pod_id("uid-notebook"), True)
