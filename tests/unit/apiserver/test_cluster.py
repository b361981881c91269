# SPDX-License-Identifier: Apache-2.0
import pytest
from extender_builders import MEMORY_MIB, gpu_node, pod, whole

from gpupack_apiserver.node_views import NodeViews

GB = MEMORY_MIB * 2**20 / 1e9


async def test_status_has_the_documented_fields(call):
    found = await call("status")
    assert found.status == 200
    assert found.body["utilization"] == {"gpu_utilization": 0.0, "gpu_memory_usage": 0.0}
    assert (found.body["total_nodes"], found.body["total_gpus"]) == (2, 8)
    assert found.body["available_nodes"][0] == {
        "node_name": "a",
        "gpu_type": "NVIDIA H100 80GB HBM3",
        "available_gpus": 4,
        "memory_per_gpu": pytest.approx(GB, abs=0.01),
        "utilization": 0.0,
    }


async def test_gpus_held_by_pods_are_allocated(call, model):
    model.ledger.pods.upsert(pod("p", on="a", devices=whole("a", 0, 1, 2, 3)))
    found = await call("status")
    assert found.body["utilization"]["gpu_utilization"] == 50.0
    assert [each["node_name"] for each in found.body["available_nodes"]] == ["b"]
    (first, _) = (await call("nodes")).body["nodes"]
    assert (first["available_gpus"], first["utilization"]) == (0, 100.0)
    assert {each["free_percent"] for each in first["devices"]} == {0.0}


async def test_simulated_gpus_mark_their_node_and_the_cluster(call, model):
    assert not (await call("status")).body["simulated"]
    model.ledger.gpus.remove(gpu_node("b"))
    model.ledger.gpus.upsert(gpu_node("b", simulated=True))
    assert (await call("status")).body["simulated"]
    nodes = (await call("nodes")).body["nodes"]
    assert [each["simulated"] for each in nodes] == [False, True]


@pytest.mark.parametrize(
    ("query", "nodes"),
    [
        ({"gpu_type": "H100"}, ["a", "b"]),
        ({"gpu_type": "V100"}, []),
        ({"min_memory_gb": 16}, ["a", "b"]),
        ({"min_memory_gb": 100.5}, []),
        ({"limit": 1}, ["a"]),
        ({"after": "a"}, ["b"]),
    ],
)
async def test_nodes_are_listed_by_model_and_memory_and_in_pages(call, query, nodes):
    found = (await call("nodes", **query)).body
    assert [each["node_name"] for each in found["nodes"]] == nodes
    assert found["next"] == ("a" if "limit" in query else "")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"min_memory_gb": "many"}, "min_memory_gb"),
        ({"min_memory_gb": -1}, "min_memory_gb"),
        ({"limit": 0}, "limit"),
        ({"gpu_type": "nvidia.com/gpu: 2"}, "gpu_type"),
        ({"gpu_type": "x" * 65}, "gpu_type"),
    ],
)
async def test_a_wrong_parameter_is_named_with_what_to_send(call, query, field):
    found = await call("nodes", **query)
    assert (found.status, found.type) == (400, "application/problem+json")
    assert found.body["field"] == field
    assert found.body["fix"]


async def test_an_unknown_path_or_method_is_answered_with_a_problem(call):
    found = await call("nothing")
    assert (found.status, found.type) == (404, "application/problem+json")
    assert found.body["detail"].startswith("path is '/api/v1/gpu/nothing': there is no such call")


@pytest.mark.parametrize("path", ["status", "nodes", "monitoring"])
async def test_a_caller_that_may_not_see_the_cluster_is_refused(call, server, path):
    server.rights.discard(("tenant", "gpunodes/summary", ""))
    found = await call(path, user="tenant")
    assert found.status == 403
    assert found.body["detail"] == (
        "tenant may not get gpunodes/summary; a ClusterRoleBinding to the ClusterRole "
        "gpupack-api-viewer grants it"
    )


async def test_a_wrong_method_is_answered_with_the_allowed_methods(call):
    found = await call("status", body={})
    assert (found.status, found.type) == (405, "application/problem+json")
    assert found.headers["allow"] == "GET, OPTIONS"
    assert found.body["detail"] == "method is 'POST': /api/v1/gpu/status has GET, OPTIONS"


async def test_options_lists_all_methods_of_a_path(call):
    found = await call("allocations/team/name", method="OPTIONS")
    assert (found.status, found.headers["allow"]) == (204, "DELETE, GET, OPTIONS")


async def test_the_openapi_document_describes_all_answers(call):
    paths = (await call("openapi/openapi.json", user="")).body["paths"]
    responses = paths["/api/v1/gpu/jobs/{namespace}/{name}"]["get"]["responses"]
    assert {"200", "400", "401", "403", "404", "429", "503"} <= responses.keys()
    assert "application/problem+json" in responses["404"]["content"]


async def test_calls_are_refused_while_watches_are_stale(call, watched):
    watched.age = 100.0
    found = await call("status")
    assert (found.status, found.headers["retry-after"]) == (503, "1")
    assert "no data of nodes for 100 s" in found.body["detail"]
    assert (await call("health", user="")).body["status"] == "stale"


async def test_health_needs_no_token(call):
    found = await call("health", user="")
    assert (found.status, found.body) == (200, {"status": "ok", "missing": ""})


async def test_the_openapi_document_lists_the_calls(call):
    found = (await call("openapi/openapi.json", user="")).body
    assert "/api/v1/gpu/status" in found["paths"]
    assert found["components"]["securitySchemes"]["token"]["scheme"] == "bearer"


async def test_the_view_of_a_node_is_computed_only_after_a_change(model):
    views = NodeViews(model.ledger)
    first = views.all()
    model.ledger.pods.upsert(pod("p", on="a", devices=whole("a", 0)))
    second = views.all()
    assert second[0] is not first[0]
    assert second[1] is first[1]


def test_free_gpus_of_partly_used_nodes_count_as_fragments(model):
    views = NodeViews(model.ledger)
    assert views.totals().fragmentation == 0.0
    model.ledger.pods.upsert(pod("p", on="a", devices=whole("a", 0)))
    # 3 of the 7 free GPUs are in no free block of four.
    assert views.totals().fragmentation == 42.9
    model.ledger.pods.upsert(pod("q", on="b", devices=whole("b", 0, 1, 2, 3)))
    assert views.totals().fragmentation == 100.0
    model.ledger.pods.upsert(pod("r", on="a", devices=whole("a", 1, 2, 3)))
    assert views.totals().fragmentation == 0.0
