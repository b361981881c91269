# SPDX-License-Identifier: Apache-2.0
"""GPUJobs and standalone pods wait in one queue: every call gives them the same positions."""

import msgspec
import pytest
from extender_builders import gated, part, pod, uuid
from extender_builders import job as placed_job

from gpupack_apiserver.shown_job import ShownJob
from gpupack_crds import names


@pytest.fixture
def busy(model, job):
    """Hold all GPUs; a pod of another namespace, a pod and a job wait, in this order."""
    for name in ("a", "b"):
        shown = placed_job(
            f"on-{name}",
            attempt=1,
            phase="Running",
            placed=[(name, (0, 1, 2, 3))],
            namespace="holders",
        )
        built = msgspec.json.encode(msgspec.to_builtins(shown))
        model.jobs.upsert(msgspec.json.decode(built, type=ShownJob))
    job("train", spec={"gpus": 2})
    model.ledger.pods.upsert(gated("hidden", created=1, namespace="other"))
    model.ledger.pods.upsert(gated("notebook", created=2))
    return model


def listed(answer):
    return {(each["kind"], each["name"]): each["position"] for each in answer.body["waiting"]}


async def test_pods_have_the_same_positions_in_queue_and_explain(call, busy):
    found = await call("queue", user="admin")
    assert listed(found) == {("Pod", "hidden"): 1, ("Pod", "notebook"): 2, ("GPUJob", "train"): 3}
    pod = (await call("pods/team/notebook/explain")).body
    train = (await call("jobs/team/train/explain")).body
    assert (pod["position"], pod["waiting"], pod["reason"]) == (2, 3, "TooFewFreeGpus")
    assert (train["position"], train["waiting"]) == (3, 3)
    ahead = {(each["kind"], each["name"]) for each in train["ahead"]}
    assert ahead == {("Pod", "notebook"), ("Pod", "hidden")}
    assert pod["start"]["kind"] == "WhenReleased"


def member(name, *, least):
    """A pod of a group, which waits."""
    labels = {names.POD_GROUP_LABEL: "ring"}
    annotations = {names.MIN_MEMBERS_ANNOTATION: str(least)}
    return gated(name, created=3, labels=labels, annotations=annotations)


async def test_members_of_a_pod_group_have_its_position(call, busy):
    for number in range(2):
        busy.ledger.pods.upsert(member(f"m-{number}", least=2))
    places = listed(await call("queue", user="admin"))
    assert (places["Pod", "m-0"], places["Pod", "m-1"]) == (3, 3)
    pod = (await call("pods/team/m-1/explain")).body
    assert (pod["position"], pod["waiting"], pod["reason"]) == (3, 4, "TooFewFreeGpus")


async def test_a_member_that_waits_for_others_says_so(call, busy):
    busy.ledger.pods.upsert(member("m-0", least=2))
    pod = (await call("pods/team/m-0/explain")).body
    text = "waits for members of pod group ring: 1 of 2 exist"
    assert (pod["reason"], pod["message"]) == ("WaitingForMembers", text)


async def test_pods_of_hidden_namespaces_are_only_counted(call, busy):
    found = await call("queue", user="tenant")
    assert listed(found) == {("Pod", "notebook"): 2, ("GPUJob", "train"): 3}
    pod = (await call("pods/team/notebook/explain", user="tenant")).body
    assert (pod["ahead"], pod["ahead_hidden"], pod["position"]) == ([], 1, 2)
    assert (await call("pods/other/hidden/explain", user="tenant")).status == 403


async def test_a_caller_that_may_list_only_jobs_sees_only_jobs(call, server, busy):
    server.rights -= {("tenant", "pods", "team")}
    for query in ({}, {"namespace": "team"}):
        assert listed(await call("queue", user="tenant", **query)) == {("GPUJob", "train"): 3}


async def test_a_pod_and_a_job_with_one_name_are_both_paged(call, busy, job):
    job("notebook", spec={"gpus": 1})
    names, after = [], ""
    for _ in range(4):
        page = await call("queue", limit=1, after=after)
        names += [(each["kind"], each["name"]) for each in page.body["waiting"]]
        after = page.body["next"]
    assert (len(set(names)), after) == (4, "")


async def test_a_pod_outside_the_queue_is_not_explained(call, busy):
    found = await call("pods/team/none/explain", user="tenant")
    assert (found.status, found.body["detail"]) == (
        404,
        "no pod team/none waits in the queue or has a node",
    )


async def test_a_bound_pod_is_explained_by_its_place(call, busy):
    busy.ledger.pods.upsert(
        pod(
            "notebook-2",
            on="a",
            namespace="team",
            devices=part("a", 0, percent=30),
            phase="Running",
        )
    )
    found = await call("pods/team/notebook-2/explain", user="tenant")
    assert found.status == 200, found.text
    explained = found.body
    assert (explained["phase"], explained["node"], explained["position"]) == (
        "Scheduled",
        "a",
        None,
    )
    assert explained["message"] == "the pod is on node a"
    ((gpu, percent),) = [(each["uuid"], each["percent"]) for each in explained["holds"]]
    assert (gpu, percent) == (uuid("a", 0), 30)
    assert (await call("pods/team/notebook-2/explain", user="other")).status == 403


async def test_a_job_has_no_position_until_the_pods_of_its_last_attempt_have_terminated(call, job):
    job("train", reason="WorkersTerminating", attempt=1)
    (row,) = (await call("queue")).body["waiting"]
    assert (row["reason"], row["position"]) == ("WorkersTerminating", None)
    job("train", reason="TooFewFreeGpus", attempt=1)
    (row,) = (await call("queue")).body["waiting"]
    assert row["position"] == 1
