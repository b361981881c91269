# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest
from extender_builders import gpu_node, job, node, observed_node, pod, uuid, whole

from gpupack_apiserver.shown_job import ShownJob
from gpupack_crds.kinds import GpuCohort, GpuQuota
from gpupack_kubeclient.objects import PriorityClass
from gpupack_placement import DEFAULT_POLICY

TEAM = {"namespace": "team", "job": {"gpus": 2, "workload": {"name": "matmul"}}}


def with_job(**spec):
    return TEAM | {"job": TEAM["job"] | spec}


@pytest.fixture
def ask(call):
    """Return a function that asks as the tenant, and returns the answer's body."""

    async def asked(body=TEAM, *, user="tenant"):
        found = await call("what-if", user=user, body=body)
        assert found.status == 200, found.body
        return found.body

    return asked


@pytest.fixture
def runs(model):
    """Return a function that runs a GPUJob on GPUs of a node for a long time."""

    def show(name, on, *gpus, namespace="team", **spec):
        shown = job(name, attempt=1, phase="Running", placed=[(on, gpus)], namespace=namespace)
        built = msgspec.to_builtins(shown)
        begun = "2026-01-01T00:00:00Z"
        built["spec"] |= spec
        built["status"] |= {
            "startedAt": begun,
            "attempts": [{"number": 1, "startedAt": begun}],
            "priority": spec.get("priority", 0),
        }
        model.jobs.upsert(msgspec.json.decode(msgspec.json.encode(built), type=ShownJob))

    return show


@pytest.fixture
def quotas(model):
    """Return a function that sets quotas by namespace; `cohort`: their cohort."""

    def show(cohort="all", **nominal):
        model.quotas.cohorts.upsert(msgspec.convert({"metadata": {"name": cohort}}, GpuCohort))
        for namespace, gpus in nominal.items():
            built = {
                "metadata": {"name": "default", "namespace": namespace},
                "spec": {"cohort": cohort, "gpus": [gpus]},
            }
            model.quotas.quotas.upsert(msgspec.convert(built, GpuQuota))

    return show


async def test_a_job_that_fits_gets_its_nodes_and_gpus(ask):
    found = await ask()
    assert (found["outcome"], found["reason"], found["waiting"]) == ("Starts", "Admitted", 0)
    (worker,) = found["workers"]
    assert (worker["worker"], len(worker["devices"])) == (0, 2)
    (first, _) = worker["devices"]
    assert first["uuid"] == uuid(worker["node"], first["index"])
    assert (first["percent"], first["memory_mib"]) == (100, 81559)


async def test_the_api_server_checks_the_job_with_the_callers_token_in_a_dry_run(ask, server):
    await ask()
    ((query, body),) = server.tried
    assert query == {"dryRun": "All", "fieldValidation": "Strict"}
    assert body["spec"] == TEAM["job"]
    assert (server.created_by, server.jobs) == (["Bearer tenant-token"], {})


@pytest.mark.parametrize(
    ("spec", "status", "field", "value"),
    [({"gpus": 0}, 422, "spec.gpus", "0"), ({"gpu": 1}, 400, "spec.gpu", "")],
)
async def test_a_job_that_apply_would_refuse_is_refused_with_field_value_and_fix(
    call, spec, status, field, value
):
    found = await call("what-if", user="tenant", body=with_job(**spec))
    assert (found.status, found.type) == (status, "application/problem+json")
    assert (found.body["field"], found.body.get("value", "")) == (field, value)
    assert found.body["fix"]


async def test_a_gang_is_placed_whole_or_not_at_all(ask):
    two = await ask(with_job(workers=2, gpus=4))
    assert {each["node"] for each in two["workers"]} == {"a", "b"}
    three = await ask(with_job(workers=3, gpus=4))
    assert (three["outcome"], three["workers"]) == ("Never", [])
    assert "it would fit with 1 worker less: 2 of 3 could ever fit" in three["would_help"]


async def test_extra_workers_of_an_elastic_gang_follow_the_minimum(ask):
    found = await ask(with_job(workers=4, minWorkers=2, gpus=4))
    assert [each["worker"] for each in found["workers"]] == [0, 1]
    found = await ask(with_job(workers=4, minWorkers=2, gpus=2))
    assert [each["worker"] for each in found["workers"]] == [0, 1, 2, 3]


ROLES = [
    {"name": "leader", "share": {"percent": 40, "memory": "8Gi"}, "workload": {"name": "matmul"}},
    {"name": "worker", "workers": 2, "gpus": 3, "workload": {"name": "matmul"}},
]


async def test_the_workers_of_all_roles_are_placed_together(ask):
    found = await ask(TEAM | {"job": {"roles": ROLES}})
    held = [[each["percent"] for each in worker["devices"]] for worker in found["workers"]]
    assert held == [[40], [100] * 3, [100] * 3]
    more = [ROLES[0], ROLES[1] | {"workers": 3}]
    never = await ask(TEAM | {"job": {"roles": more}})
    assert (never["outcome"], never["workers"]) == ("Never", [])


async def test_node_rules_of_a_roles_template_are_applied(ask, model):
    model.ledger.nodes.upsert(node("b", labels={"zone": "z"}))
    rules = {"template": {"spec": {"nodeSelector": {"zone": "z"}}}}
    found = await ask(TEAM | {"job": {"roles": [ROLES[0] | rules]}})
    assert [each["node"] for each in found["workers"]] == ["b"]


async def test_a_share_is_shown_with_percent_and_memory(ask):
    body = {"namespace": "team", "job": {"share": {"percent": 30, "memory": "10Gi"}}}
    ((device,),) = [each["devices"] for each in (await ask(body))["workers"]]
    assert (device["percent"], device["memory_mib"]) == (30, 10240)


async def test_devices_of_observed_nodes_are_not_named(ask, model):
    model.ledger.nodes.upsert(observed_node("o"))
    model.ledger.gpus.upsert(gpu_node("o", mode="observed", resource="nvidia.com/gpu"))
    found = await ask(with_job(resourceName="nvidia.com/gpu"))
    assert found["workers"] == [{"worker": 0, "node": "o", "devices": [], "pod": ""}]


async def test_node_rules_of_the_template_are_applied(ask, model):
    model.ledger.nodes.upsert(node("b", labels={"zone": "east"}))
    template = {"spec": {"nodeSelector": {"zone": "east"}}}
    found = await ask(with_job(template=template))
    assert [each["node"] for each in found["workers"]] == ["b"]
    template = {"spec": {"nodeSelector": {"zone": "west"}}}
    assert (await ask(with_job(template=template)))["outcome"] == "Never"


async def test_a_waiting_job_with_an_order_of_models_shows_when_the_next_is_permitted(
    ask, runs, model
):
    for name in ("a", "b"):
        runs(f"on-{name}", name, 0, 1, 2, 3)
    model.ledger.nodes.upsert(node("c"))
    model.ledger.gpus.upsert(gpu_node("c", model="NVIDIA A100-SXM4-80GB"))
    order = {"gpuModels": ["H100", "A100"], "gpuModelFallback": {"afterSeconds": 600}}
    found = await ask(with_job(**order))
    assert found["outcome"] == "Waits"
    assert found["models"]["permitted"] == ["H100"]
    assert found["models"]["following"] == ["A100"]
    assert found["models"]["following_at"] == found["start"]["at"]
    assert 590 < found["estimated_wait_seconds"] <= 600
    assert (await ask(with_job(gpuModels=["H100", "A100"])))["outcome"] == "Starts"


async def test_excluded_nodes_are_not_used(ask):
    (worker,) = (await ask())["workers"]
    (other,) = (await ask(TEAM | {"without_nodes": [worker["node"]]}))["workers"]
    assert other["node"] != worker["node"]
    found = await ask(TEAM | {"without_nodes": ["a", "b"]})
    assert (found["outcome"], found["reason"]) == ("Waits", "NodeCordoned")


async def test_an_unknown_excluded_node_is_refused(call):
    found = await call("what-if", user="tenant", body=TEAM | {"without_nodes": ["a", "z"]})
    assert (found.status, found.body["field"]) == (400, "without_nodes[1]")
    assert found.body["value"] == "z"


async def test_the_policy_default_is_that_of_the_simulator(ask):
    placed = [
        (await ask(with_job(gpus=1) | {"policy": policy}))["workers"]
        for policy in ("default", DEFAULT_POLICY)
    ]
    assert placed[0] == placed[1]


async def test_another_policy_gives_another_placement(ask, model):
    model.ledger.pods.upsert(pod("p", on="b", devices=whole("b", 0)))
    places = {
        policy: (await ask(with_job(gpus=1) | {"policy": policy}))["workers"][0]["node"]
        for policy in ("best-fit", "worst-fit")
    }
    assert places == {"best-fit": "b", "worst-fit": "a"}


async def test_victims_are_named_to_callers_that_may_list_them(ask, runs, quotas):
    quotas(team={"model": "*", "nominal": 8}, others={"model": "*", "nominal": 0})
    runs("mine", "a", 0, 1, 2, 3, priority=-5)
    runs("theirs", "b", 0, 1, 2, 3, namespace="others")
    found = await ask(with_job(gpus=4))
    assert (found["outcome"], found["reason"]) == ("Starts", "PreemptionPending")
    assert found["preempts"] == [{"namespace": "team", "name": "mine", "kind": "GPUJob"}]
    assert [each["node"] for each in found["workers"]] == ["a"]
    named = await ask(with_job(gpus=4, workers=2))
    assert named["preempts"] == [{"namespace": "team", "name": "mine", "kind": "GPUJob"}]
    assert named["preempts_hidden"] == 1
    assert "theirs" not in str(named)


async def test_other_quotas_let_it_start(ask, quotas):
    limit = {"model": "*", "nominal": 0, "borrowingLimit": 0}
    quotas(team=limit)
    found = await ask()
    assert (found["outcome"], found["reason"]) == ("Never", "Unsatisfiable")
    given = {"namespace": "team", "spec": {"gpus": [limit | {"nominal": 4}]}}
    assert (await ask(TEAM | {"quotas": [given]}))["outcome"] == "Starts"
    assert (await ask())["outcome"] == "Never"


async def test_the_advice_names_how_many_gpus_a_quota_allows(ask, quotas):
    quotas(team={"model": "*", "nominal": 1, "borrowingLimit": 0})
    found = await ask(with_job(gpus=4))
    assert found["would_help"] == [
        "its quota would allow it with 3 GPUs less: it may use at most 1 GPU",
        "a larger GPUQuota of its namespace allows 4 GPUs",
    ]


@pytest.mark.parametrize(
    ("sees", "hint"),
    [
        (False, "other namespaces give back 4 borrowed GPUs"),
        (True, "others gives back 4 borrowed GPUs"),
    ],
)
async def test_borrowers_are_named_to_callers_that_may_list_their_quota(
    ask, runs, quotas, server, sees, hint
):
    if sees:
        server.rights.add(("tenant", "gpuquotas", "others"))
    quotas(
        team={"model": "*", "nominal": 0},
        lender={"model": "*", "nominal": 8, "lendingLimit": 4},
        others={"model": "*", "nominal": 0},
    )
    runs("theirs", "b", 0, 1, 2, 3, namespace="others")
    found = await ask()
    assert (found["outcome"], found["reason"]) == ("Waits", "QuotaExceeded")
    assert found["would_help"] == [hint]


async def test_quotas_of_a_forbidden_namespace_are_refused(call):
    given = {"namespace": "others", "spec": {"gpus": []}}
    found = await call("what-if", user="tenant", body=TEAM | {"quotas": [given]})
    assert found.status == 403


async def test_an_invalid_quota_is_refused_with_its_field(call):
    limit = {"model": "*", "nominal": 1, "lendingLimit": 2}
    given = {"namespace": "team", "spec": {"gpus": [limit]}}
    found = await call("what-if", user="tenant", body=TEAM | {"quotas": [given]})
    assert (found.status, found.body["field"]) == (400, "quotas[0].spec.gpus[0].lendingLimit")


async def test_pending_jobs_ahead_are_considered_first(ask, runs, job):
    """Pending decisions count as done: `next` has node b by then."""
    runs("big", "a", 0, 1, 2, 3)
    job("next", spec={"gpus": 4})
    job("first", spec={"gpus": 4})
    found = await ask(with_job(gpus=4))
    assert (found["outcome"], found["position"], found["waiting"]) == ("Waits", 2, 2)


async def test_a_priority_class_is_applied_or_its_problem_is_reported(ask, model):
    asked = with_job(priorityClassName="high")
    found = await ask(asked)
    assert (found["outcome"], found["reason"]) == ("Waits", "PriorityClassMissing")
    built = {"metadata": {"name": "high"}, "value": 7, "preemptionPolicy": "Never"}
    model.classes.upsert(msgspec.convert(built, PriorityClass))
    assert (await ask(asked))["outcome"] == "Starts"


async def test_a_suspended_job_waits(ask):
    found = await ask(with_job(suspend=True))
    assert (found["outcome"], found["reason"], found["position"]) == ("Waits", "Suspended", None)


async def test_a_job_that_the_scheduler_cannot_read_never_runs(ask):
    found = await ask(with_job(resourceName="example.com/gpu"))
    assert (found["outcome"], found["reason"]) == ("Never", "InvalidTemplate")
    assert "nvidia.com/gpu" in found["message"]


async def test_a_query_changes_nothing(ask, model, runs, job, quotas):
    quotas(team={"model": "*", "nominal": 8})
    runs("big", "a", 0, 1, 2, 3, namespace="others")
    job("first", spec={"gpus": 4})
    model.queue_copy.follow()
    state = model.queue_copy.observed.queue.state
    before = (
        model.ledger.cluster.held(),
        model.ledger.cluster.arrays.free_milli.tolist(),
        [entry.job for entry in state.pending],
        list(state.running),
        dict(state.reserved),
    )
    for asked in (TEAM, with_job(gpus=4, workers=2), TEAM | {"without_nodes": ["a"]}):
        await ask(asked)
    after = (
        model.ledger.cluster.held(),
        model.ledger.cluster.arrays.free_milli.tolist(),
        [entry.job for entry in state.pending],
        list(state.running),
        dict(state.reserved),
    )
    assert after == before


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"namespace": "Team", "job": {}}, "namespace"),
        ({"namespace": "team", "job": []}, "job"),
        (TEAM | {"policy": "best"}, "policy"),
        (TEAM | {"without_nodes": ["a"] * 257}, "without_nodes"),
    ],
)
async def test_an_invalid_field_of_the_call_is_named(call, body, field):
    found = await call("what-if", user="tenant", body=body)
    assert (found.status, found.body["field"]) == (400, field)


async def test_a_body_that_is_too_large_is_not_read(call):
    found = await call("what-if", user="tenant", body=with_job(name="x" * (3 << 20)))
    assert found.status == 413


async def test_a_caller_that_may_not_create_gpujobs_is_refused(call):
    found = await call("what-if", user="tenant", body=TEAM | {"namespace": "others"})
    assert (found.status, found.body["detail"]) == (403, "you may not create gpujobs in others")


async def test_a_caller_that_may_not_see_the_cluster_gets_no_outcome(call, server):
    server.rights.discard(("tenant", "gpunodes/summary", ""))
    found = await call("what-if", user="tenant", body=TEAM)
    assert (found.status, server.tried) == (403, [])
