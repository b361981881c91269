# SPDX-License-Identifier: Apache-2.0
import pytest
from extender_builders import gpu_node, node, part, pod, uuid, whole


@pytest.fixture
def held(model):
    model.ledger.pods.upsert(pod("trainer", on="a", devices=whole("a", 1, 2), namespace="team"))
    sharing = part("a", 3, percent=40, memory_mib=8192)
    model.ledger.pods.upsert(pod("notebook", on="a", devices=sharing, namespace="team"))
    model.ledger.pods.upsert(pod("secret", on="b", devices=whole("b", 0), namespace="others"))


async def test_holders_have_an_entry_for_each_gpu_of_each_pod(call, held):
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


async def test_holders_can_be_filtered_by_node(call, held):
    assert [each["pod"] for each in (await call("holders", node="b")).body["holders"]] == ["secret"]


async def test_holders_show_only_namespaces_with_listable_pods(call, held, server):
    assert "secret" not in str((await call("holders", user="tenant")).body)
    assert "secret" in str((await call("holders")).body)
    refused = await call("holders", user="tenant", namespace="others")
    assert (refused.status, refused.body["detail"]) == (
        403,
        (
            "tenant may not list pods in namespace others; a RoleBinding there to the ClusterRole "
            "view grants it"
        ),
    )
    server.rights.discard(("tenant", "pods", "team"))
    assert (await call("holders", user="other")).body["holders"] == []


async def test_pages_of_holders_are_complete(call, held):
    seen, after = [], ""
    for _ in range(4):
        page = (await call("holders", limit=1, after=after)).body
        seen += [each["uuid"] for each in page["holders"]]
        after = page["next"]
    assert after == ""
    assert sorted(seen) == sorted([uuid("a", 1), uuid("a", 2), uuid("a", 3), uuid("b", 0)])


async def test_a_removed_pod_with_running_processes_is_shown(call, model):
    model.ledger.gpus.upsert(gpu_node("a", lingering={"gone": whole("a", 0)}))
    (found,) = (await call("holders")).body["holders"]
    assert (found["pod"], found["uuid"]) == ("gone", uuid("a", 0))


async def test_holders_of_observed_nodes_come_from_the_agent(call, model):
    observed = gpu_node("c", mode="observed", lingering={"theirs": whole("c", 1)})
    model.ledger.gpus.upsert(observed)
    model.ledger.nodes.upsert(node("c"))
    (found,) = (await call("holders")).body["holders"]
    assert (found["pod"], found["node"], found["uuid"]) == ("theirs", "c", uuid("c", 1))


async def test_a_worker_is_shown_with_its_job(call, model):
    model.ledger.pods.upsert(pod("w", on="a", devices=whole("a", 0), worker=("train", 1, 0)))
    (found,) = (await call("holders")).body["holders"]
    assert found["job"] == "train"
