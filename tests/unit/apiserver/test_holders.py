# SPDX-License-Identifier: Apache-2.0
import pytest
from extender_builders import gpu_node, node, part, pod, uuid, whole


@pytest.fixture
def held(model):
    model.ledger.pods.upsert(pod("trainer", on="a", devices=whole("a", 1, 2), namespace="team"))
    sharing = part("a", 3, percent=40, memory_mib=8192)
    model.ledger.pods.upsert(pod("notebook", on="a", devices=sharing, namespace="team"))
    model.ledger.pods.upsert(pod("secret", on="b", devices=whole("b", 0), namespace="others"))


async def test_each_gpu_of_each_pod_is_an_entry(call, held):
    found = (await call("holders", user="tenant")).body["holders"]
    assert [(each["pod"], each["index"], each["percent"]) for each in found] == [
        ("notebook", 3, 40),
        ("trainer", 1, 100),
        ("trainer", 2, 100),
    ]
    assert found[0] == {
        "namespace": "team",
        "pod": "notebook",
        "job": "",
        "worker": None,
        "node": "a",
        "uuid": uuid("a", 3),
        "index": 3,
        "percent": 40,
        "memory_mib": 8192,
        "isolation": "cooperative",
    }
    assert found[1]["isolation"] == "strict"


async def test_holders_of_one_node_are_asked_for(call, held):
    assert [each["pod"] for each in (await call("holders", node="b")).body["holders"]] == ["secret"]


async def test_pods_are_shown_of_namespaces_whose_pods_the_caller_may_list(call, held, server):
    assert "secret" not in str((await call("holders", user="tenant")).body)
    assert "secret" in str((await call("holders")).body)
    refused = await call("holders", user="tenant", namespace="others")
    assert (refused.status, refused.body["detail"]) == (
        403,
        "tenant may not list pods in namespace others",
    )
    server.rights.discard(("tenant", "pods", "team"))
    assert (await call("holders", user="other")).body["holders"] == []


async def test_pages_of_holders_follow_each_other(call, held):
    seen, after = [], ""
    for _ in range(4):
        page = (await call("holders", limit=1, after=after)).body
        seen += [each["uuid"] for each in page["holders"]]
        after = page["next"]
    assert after == ""
    assert sorted(seen) == sorted([uuid("a", 1), uuid("a", 2), uuid("a", 3), uuid("b", 0)])


async def test_a_pod_that_is_gone_and_whose_processes_are_not_is_shown_still(call, model):
    model.ledger.gpus.upsert(gpu_node("a", lingering={"gone": whole("a", 0)}))
    (found,) = (await call("holders")).body["holders"]
    assert (found["pod"], found["uuid"]) == ("gone", uuid("a", 0))


async def test_an_agent_says_who_holds_what_where_the_kubelet_chooses(call, model):
    told = gpu_node("c", mode="observed", lingering={"theirs": whole("c", 1)})
    model.ledger.gpus.upsert(told)
    model.ledger.nodes.upsert(node("c"))
    (found,) = (await call("holders")).body["holders"]
    assert (found["pod"], found["node"], found["uuid"]) == ("theirs", "c", uuid("c", 1))


async def test_a_worker_is_shown_with_its_job(call, model):
    model.ledger.pods.upsert(pod("w", on="a", devices=whole("a", 0), worker=("train", 1, 0)))
    (found,) = (await call("holders")).body["holders"]
    assert found["job"] == "train"
