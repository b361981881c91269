# SPDX-License-Identifier: Apache-2.0
"""The request of a pod is read once and takes limited memory for any size."""

import math
import tracemalloc

import msgspec
import pytest
from extender_builders import OBSERVED, called, gated, plan_request, pod, whole

from gpupack_crds import names
from gpupack_placement import (
    MilliCpu,
    NodeSelector,
    Operator,
    Request,
    Requirement,
    Term,
    Toleration,
    TolerationOperator,
)
from gpupack_scheduler.errors import RequestInvalid
from gpupack_scheduler.ledger.placed_job import PlacedJob
from gpupack_scheduler.ledger.watched_pod import WatchedPod
from gpupack_scheduler.queueing.pending.request import waiting_pod
from gpupack_scheduler.requests import gang_request, pod_request
from gpupack_scheduler.requests.gang_request import WorkerPod
from gpupack_scheduler.requests.node_rules import MAX_BYTES, MAX_CONDITIONS, MAX_VALUES

MIB = 1 << 20


def of_call(asking, **rules):
    return pod_request.of_call(called(asking, **rules), (OBSERVED,))


def affinity(terms):
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required}


def term(*values, key="zone"):
    return {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}


@pytest.mark.parametrize(
    ("asking", "text"),
    [
        (
            pod("p", gpus=1_048_576),
            "pod p: gpupack.dev/gpu is 1048576; no node has more than 128 GPUs: ask for fewer",
        ),
        (pod("p", asking={OBSERVED: "129"}), "nvidia.com/gpu is 129; no node has more than 128"),
        (pod("p", cpu="16777217"), "pod p: it requests 16777217000 milli-CPU; no node has more"),
    ],
)
def test_a_request_beyond_any_node_is_refused_and_not_learned(world, asking, text):
    refused = world.filter(asking).failed_and_unresolvable_nodes
    assert all(text in refused[node] for node in ("a", "b"))
    world.ledger.pods.upsert(asking)
    assert world.ledger.learner.peek().mix.demands == ()


def test_a_pod_says_all_that_it_asks_for_in_one_value():
    rules = {
        "nodeSelector": {"disk": "ssd"},
        "affinity": affinity([term("east", "west")]),
        "tolerations": [{"key": "team", "operator": "Exists"}],
    }
    ask = of_call(pod("p", gpus=2, worker=("train", 1, 0)), **rules)
    east_or_west = Requirement("zone", Operator.IN, ("east", "west"))
    assert (ask.uid, ask.namespace, ask.name, ask.worker.index) == ("uid-p", "team", "p", 0)
    assert ask.served() == Request(
        gpus=2,
        cpu=MilliCpu(1000),
        selector=NodeSelector((("disk", "ssd"),), (Term((east_or_west,)),)),
        tolerations=(Toleration("team", TolerationOperator.EXISTS),),
    )


def test_rules_about_nodes_that_are_absent_or_null_ask_nothing():
    absent = of_call(pod("p"))
    null = of_call(pod("p"), nodeSelector=None, affinity=None, tolerations=None)
    assert absent.served().selector is None
    assert absent == null


def test_requests_are_read_from_every_field_that_kube_scheduler_reads():
    shown = pod_request.of_watch(pod("p"), ()).served()
    assert shown.selector is None
    assert Toleration(operator=TolerationOperator.EXISTS) in shown.tolerations


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        (
            {"affinity": affinity([{}] * (MAX_CONDITIONS + 1))},
            "have 513 labels, tolerations, terms and expressions in all; at most 512 are read",
        ),
        (
            {"tolerations": [{"key": str(n), "operator": "Exists"} for n in range(513)]},
            "have 513 labels, tolerations, terms and expressions",
        ),
        (
            {"affinity": affinity([term(*map(str, range(MAX_VALUES + 1)))])},
            "have 4097 values in all; at most 4096 are read: name nodes by a label",
        ),
        ({"affinity": affinity([term(str(n)) for n in range(30_000)])}, "bytes of JSON in all"),
        ({"nodeSelector": {"x": "y" * MAX_BYTES}}, "bytes of JSON in all"),
        ({"affinity": affinity([term("x", key=5)])}, "its rules about nodes cannot be read"),
        ({"tolerations": [{"operator": "Near"}]}, "'Near' is not a valid"),
    ],
)
def test_more_rules_than_are_read_are_refused_by_number(world, rules, text):
    ask = of_call(pod("p"), **rules)
    assert text in ask.refusal
    refused = world.filter_pod(ask, ["a"]).failed_and_unresolvable_nodes["a"]
    assert refused == ask.refusal
    assert len(refused) < 300


def test_as_many_rules_as_admission_allows_are_read():
    values = [f"node-{n}" for n in range(16)]
    ask = of_call(pod("p"), affinity=affinity([term(*values) for _ in range(MAX_CONDITIONS // 2)]))
    assert ask.refusal == ""


def test_a_gang_is_bound_to_as_many_rules():
    pod_spec = {"containers": [{"name": "worker"}], "affinity": affinity([{}] * 513)}
    raw = msgspec.Raw(msgspec.json.encode(pod_spec))
    asked = WorkerPod.read(raw)
    with pytest.raises(RequestInvalid, match="have 513 labels, tolerations, terms"):
        gang_request.gang(plan_request("train").spec, (asked,), (), namespace="default")


def decoded(raw, kind):
    """What is kept of so many objects, and the most that reading them took, in MiB."""
    tracemalloc.start()
    try:
        kept = [msgspec.json.decode(raw, type=kind) for _ in range(40)]
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(kept) == 40
    return held / MIB, peak / MIB


def with_thirty_thousand_terms():
    manifest = msgspec.to_builtins(pod("p"))
    manifest["spec"]["affinity"] = affinity([term("x")] * 30_000)
    manifest["spec"]["nodeSelector"] = {f"a{n}": "" for n in range(30_000)}
    manifest["metadata"]["labels"] = {f"a{n}": "" for n in range(30_000)}
    return msgspec.json.encode(manifest)


def test_pods_with_thirty_thousand_terms_and_labels_are_listed_in_little_memory():
    held, peak = decoded(with_thirty_thousand_terms(), WatchedPod)
    assert held < 1
    assert peak < 16


def test_jobs_with_thirty_thousand_terms_are_listed_in_little_memory():
    spec = {"affinity": affinity([term("x")] * 30_000), "containers": [{"name": "worker"}]}
    job = {"metadata": {"name": "j"}, "spec": {"gpus": 1, "template": {"spec": spec}}}
    held, peak = decoded(msgspec.json.encode(job), PlacedJob)
    assert held < 1
    assert peak < 16


@pytest.mark.parametrize(
    ("priority", "policy", "counts"),
    [
        (2_000_001_000, "PreemptLowerPriority", 7),
        (2_000_001_000, None, 7),
        (5, "PreemptLowerPriority", 5),
        (-5, "PreemptLowerPriority", -5),
        (1_000_000, "Never", 1_000_000),
        (-5, "Never", -5),
    ],
)
def test_a_priority_counts_in_full_only_if_its_class_never_preempts(priority, policy, counts):
    by_class = {"priority": priority} | ({"preemptionPolicy": policy} if policy else {})
    shown = gated("p", spec=by_class)
    asks = (
        pod_request.of_call(called(pod("p"), **by_class), (), max_priority=7),
        pod_request.of_watch(shown, (), max_priority=7),
        pod_request.of_gated(shown, shown.spec, (), max_priority=7),
    )
    assert [ask.priority for ask in asks] == [counts] * 3


def test_a_pod_that_runs_counts_as_it_did_while_it_waited(world):
    critical = {"priority": 2_000_001_000, "nodeName": "a"}
    built = msgspec.to_builtins(pod("p", devices=whole("a", 0)))
    built["spec"] |= critical
    world.ledger.pods.upsert(msgspec.convert(built, WatchedPod))
    assert world.ledger.claims.pods["uid-p"].priority == 0


def test_thousands_of_sidecars_are_counted_in_one_pass():
    sidecars = [
        {"name": f"s{n}", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1m"}}}
        for n in range(5000)
    ]
    manifest = msgspec.to_builtins(pod("p"))
    manifest["spec"]["initContainers"] = sidecars
    ask = pod_request.of_watch(msgspec.convert(manifest, WatchedPod), ())
    assert ask.served().cpu == 1000 + 5000


def test_of_a_watched_pod_stays_what_tells_whose_devices_it_holds():
    worker = pod("p", worker=("train", 1, 0), annotations={names.DEVICES_ANNOTATION: "x", "y": "z"})
    shown = msgspec.json.decode(msgspec.json.encode(worker), type=WatchedPod)
    assert shown.metadata.labels == worker.metadata.labels
    assert shown.metadata.annotations == {names.DEVICES_ANNOTATION: "x"}
    assert shown.metadata.owner_references == worker.metadata.owner_references


@pytest.mark.parametrize(
    ("spec", "duration"),
    [
        ({}, math.inf),
        ({"restartPolicy": "Always"}, math.inf),
        ({"restartPolicy": "Always", "activeDeadlineSeconds": 600}, 600.0),
        ({"restartPolicy": "Never"}, None),
        ({"restartPolicy": "OnFailure", "activeDeadlineSeconds": 60}, 60.0),
        ({"restartPolicy": "Never", "activeDeadlineSeconds": -1}, None),
    ],
)
def test_a_pod_that_always_restarts_has_no_end_and_a_deadline_is_its_duration(spec, duration):
    found = pod_request.of_call(called(pod("p"), **spec), ())
    assert found.duration == waiting_pod(found).duration == duration


@pytest.mark.parametrize(
    ("spec", "grace"),
    [
        ({}, 30.0),
        ({"terminationGracePeriodSeconds": 0}, 0.0),
        ({"terminationGracePeriodSeconds": 600}, 600.0),
        ({"terminationGracePeriodSeconds": 10**9}, 3600.0),
        ({"terminationGracePeriodSeconds": -5}, 0.0),
    ],
)
def test_a_pod_leaves_within_its_grace_period_of_at_most_an_hour(spec, grace):
    found = pod_request.of_call(called(pod("p"), **spec), ())
    assert waiting_pod(found).grace_seconds == grace
