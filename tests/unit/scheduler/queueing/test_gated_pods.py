# SPDX-License-Identifier: Apache-2.0
"""Standalone pods with the queue's gate: pending, admitted, and after a change of leader."""

import datetime as dt

import msgspec
import pytest
from extender_builders import gated, node, pod, whole

from gpupack_crds import names
from gpupack_crds.plan import PlanRefusal
from gpupack_kubeclient import objects
from gpupack_scheduler.ledger import claims
from gpupack_scheduler.queueing import observed_queue
from gpupack_scheduler.queueing.pending import gate
from gpupack_scheduler.queueing.pending.request import pod_id
from gpupack_scheduler.queueing.pods import admitted_pods
from gpupack_scheduler.requests.needs import Needs


def opened(world, place):
    """The pod as the watch shows it once its gate is open, with this place."""
    asked, _ = world.gates.opened[-1]
    patch = gate.opening(asked, place)
    metadata = msgspec.structs.replace(asked.metadata, annotations=patch["metadata"]["annotations"])
    spec = msgspec.structs.replace(asked.spec, scheduling_gates=())
    return msgspec.structs.replace(asked, metadata=metadata, spec=spec)


def names_of(world):
    return [each.metadata.name for each, _ in world.gates.opened]


@pytest.fixture
def full(world):
    """Two nodes of 4 GPUs, all held by one job since it was admitted."""
    world.asks("holder", workers=2, gpus=4)
    world.written("holder")
    return world


def test_a_pod_that_fits_is_admitted_and_its_gpus_are_held(world):
    world.ledger.pods.upsert(gated("p", gpus=2))
    world.decide()
    ((_, place),) = world.gates.opened
    assert (place.node, world.free("a"), world.running()) == ("a", [2, 3], ["pod p"])


def test_its_gate_is_opened_by_a_write_that_pins_it_to_its_node(world):
    world.ledger.pods.upsert(gated("p"))
    world.decide()
    asked, place = world.gates.opened[0]
    patch = gate.opening(asked, place)
    assert patch["metadata"]["uid"] == "uid-p"
    assert patch["metadata"]["resourceVersion"] == "7"
    assert patch["spec"] == {
        "schedulingGates": None,
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchFields": [
                                {"key": "metadata.name", "operator": "In", "values": ["a"]}
                            ]
                        }
                    ]
                }
            }
        },
    }


def test_every_term_of_its_own_affinity_is_tightened(world):
    terms = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]},
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    asked = gated("p", spec={"affinity": {"nodeAffinity": required}})
    place = world.ledger.claims.allocation(place_on("a"))
    affinity = gate.opening(asked, place)["spec"]["affinity"]["nodeAffinity"]
    written = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    name = {"key": "metadata.name", "operator": "In", "values": ["a"]}
    assert [term["matchFields"][-1] for term in written] == [name, name]
    assert written[0]["matchExpressions"] == terms[0]["matchExpressions"]


def place_on(node):
    return claims.placement(node, whole(node, 0), needs=Needs(cpu=1000))


@pytest.mark.parametrize(
    "spec",
    [
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]},
        {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]},
        {"affinity": {"podAntiAffinity": {"x": []}}},
        {"topologySpreadConstraints": [{"maxSkew": 1}]},
        {"resourceClaims": [{"name": "nic"}]},
        {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}
                }
            }
        },
    ],
)
def test_a_pod_with_constraints_that_the_queue_does_not_know_keeps_all_nodes(world, spec):
    asked = gated("p", spec=spec)
    place = world.ledger.claims.allocation(place_on("a"))
    assert "affinity" not in gate.opening(asked, place)["spec"]


def test_a_pod_that_does_not_fit_waits_and_is_admitted_by_age_among_jobs(full):
    full.ledger.pods.upsert(gated("late", created=30))
    full.ledger.pods.upsert(gated("early", created=20))
    assert isinstance(full.asks("between", submitted=1767225625.0), PlanRefusal)
    assert [job.name for job in full.owner.queue.jobs()] == [
        "pod early",
        "between",
        "pod late",
    ]
    full.ends("holder")
    full.decide()
    assert (names_of(full), full.called()) == (["early", "late"], ["between"])


def test_a_reservation_is_made_for_a_pod_that_has_waited_long(full):
    full.ledger.pods.upsert(gated("notebook", gpus=4))
    full.decide()
    full.now += 301
    full.ends("holder", nodes=["a"])
    full.ledger.pods.upsert(pod("other", on="b", devices=whole("b", 0), gpus=1))
    full.decide()
    assert names_of(full) == ["notebook"]


@pytest.mark.parametrize("gates", [("mine",), (names.QUEUE_GATE, "mine")])
def test_a_pod_with_other_gates_is_not_admitted(world, gates):
    world.ledger.pods.upsert(gated("p", gates=gates))
    world.decide()
    assert (world.gates.opened, len(world.owner.observed)) == ([], 0)


@pytest.mark.parametrize("others", [(), ("mine",)])
def test_a_pod_waits_since_nothing_but_the_queue_keeps_it(full, others):
    full.now = 1_767_225_700
    full.ledger.pods.upsert(gated("p", created=20, gates=(names.QUEUE_GATE, *others)))
    full.decide()
    full.ledger.pods.upsert(gated("p", created=20))
    full.decide()
    entry = full.owner.queue.state.pending.get("pod/uid-p")
    assert entry.pending_since == (full.now if others else entry.job.submitted)


def test_a_pod_that_leaves_waits_no_longer(full):
    full.ledger.pods.upsert(gated("p"))
    full.decide()
    assert len(full.owner.observed) == 1
    full.ledger.pods.remove(gated("p"))
    full.decide()
    assert len(full.owner.observed) == 0


def test_a_pod_whose_gate_another_component_removed_leaves_the_queue(full):
    """It is admitted when kube-scheduler calls the filter, behind all pending jobs."""
    full.ledger.pods.upsert(gated("p"))
    full.decide()
    assert len(full.owner.observed) == 1
    full.ledger.pods.upsert(gated("p", gates=()))
    full.ends("holder")
    full.decide()
    assert (full.gates.opened, len(full.owner.observed)) == ([], 0)
    assert full.filter(pod("p")).node_names == ["a"]


def test_a_pod_whose_rules_are_too_long_to_keep_is_left_to_filter(world):
    selector = {f"label-{number}": "x" * 60 for number in range(40)}
    world.ledger.pods.upsert(gated("p", spec={"nodeSelector": selector}))
    world.decide()
    ((_, place),) = world.gates.opened
    assert (place, len(world.owner.observed)) == (None, 0)


def test_a_gated_pod_respects_its_node_constraints(world):
    world.ledger.pods.upsert(
        gated("p", spec={"nodeSelector": {"kubernetes.io/hostname": "nowhere"}})
    )
    world.decide()
    assert (world.gates.opened, len(world.owner.observed)) == ([], 1)


def test_an_admitted_pod_is_bound_to_its_gpus(world):
    world.ledger.pods.upsert(gated("p", gpus=2))
    world.decide()
    shown = opened(world, world.gates.opened[0][1])
    world.ledger.pods.upsert(shown)
    world.decide()
    assert world.filter(pod("p", gpus=2)).node_names == ["a"]
    world.bind(shown, "a")
    world.decide()
    assert (world.states(), world.running()) == (["bound"], ["pod p"])


def test_a_new_leader_holds_the_gpus_of_admitted_pods(world):
    world.ledger.pods.upsert(gated("p", gpus=3))
    world.decide()
    shown = opened(world, world.gates.opened[0][1])
    world.use(world.new_ledger())
    world.add_node("a")
    world.add_node("b")
    world.ledger.pods.upsert(shown)
    world.decide()
    assert (world.free("a"), world.running()) == ([3], ["pod p"])
    assert world.filter(pod("p", gpus=3)).node_names == ["a"]


def test_a_new_leader_keeps_the_reservation_of_a_pod_that_waited_before(full):
    full.now = moment = msgspec.convert("2026-01-01T00:00:01Z", dt.datetime).timestamp()
    full.ledger.pods.upsert(gated("p", gpus=4))
    full.decide()
    full.now += 301
    full.owner.observed.withdraw_all()
    full.decide()
    assert full.owner.queue.state.pending.get(pod_id("uid-p")).pending_since == moment


def test_the_gpus_of_an_admitted_pod_are_held_for_one_minute_once(world):
    world.ledger.pods.upsert(gated("p", gpus=3))
    world.decide()
    shown = opened(world, world.gates.opened[0][1])
    world.ledger.pods.upsert(shown)
    world.decide()
    world.now += admitted_pods.SECONDS + 1
    world.ledger.expire()
    world.ledger.pods.upsert(shown)
    world.decide()
    assert world.free("a") == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "written", ["", "rubbish", "[]", '{"node":"a","workers":"0-5"}', '{"node":"z","workers":"0"}']
)
def test_an_invalid_or_impossible_placement_annotation_holds_no_gpus(world, written):
    world.ledger.pods.upsert(
        gated("p", gates=(), annotations={names.PLACEMENT_ANNOTATION: written})
    )
    world.decide()
    assert world.states() == []


def test_a_placement_annotation_for_other_gpus_than_requested_holds_none(world):
    """A user that can write the annotation would otherwise hold them for a minute without quota."""
    place = world.ledger.claims.allocation(place_on("a"))
    written = gate.opening(gated("p"), place)["metadata"]["annotations"]
    world.ledger.pods.upsert(gated("p", gpus=4, gates=(), annotations=written))
    world.decide()
    assert world.states() == []


def test_the_number_of_admitted_unbound_pods_is_limited(world):
    for number in range(40):
        world.add_node(f"n{number}")
    for number in range(150):
        world.ledger.pods.upsert(gated(f"p{number}"))
    world.decide()
    most = admitted_pods.MAX_ADMITTED_PODS // 2
    assert (len(world.gates.opened), len(world.owner.observed)) == (most, 150 - most)


def test_pods_that_are_never_bound_keep_no_other_namespace_s_out(world):
    for number in range(40):
        world.add_node(f"n{number}")
    for number in range(300):
        world.ledger.pods.upsert(gated(f"p{number}"))
    world.decide()
    world.ledger.pods.upsert(gated("other", namespace="other", created=50))
    world.decide()
    assert names_of(world)[-1] == "other"


def test_namespaces_whose_pods_are_never_bound_together_keep_no_other_s_out(world):
    for number in range(40):
        world.add_node(f"n{number}")
    for tenant in range(6):
        for number in range(100):
            name = f"p{tenant}-{number}"
            world.ledger.pods.upsert(gated(name, namespace=f"greedy-{tenant}"))
        world.decide()
    world.ledger.pods.upsert(gated("other", namespace="other", created=50))
    world.decide()
    assert names_of(world)[-1] == "other"


def test_gpus_are_free_once_kube_scheduler_reports_the_pod_unschedulable(world):
    world.ledger.pods.upsert(gated("p"))
    world.decide()
    shown = opened(world, world.gates.opened[0][1])
    world.ledger.pods.upsert(shown)
    world.decide()
    assert world.states() == ["assumed"]
    world.ledger.pods.upsert(unschedulable(shown, owners=()))
    world.decide()
    assert (world.states(), world.running()) == ([], [])


def test_no_placement_is_computed_for_pods_beyond_the_admission_limit(world, monkeypatch):
    """Each end of a Binding would cost one search for each pod of a cycle, all but one in vain."""
    sought = []
    choose = observed_queue.place_by_policy
    monkeypatch.setattr(
        observed_queue, "place_by_policy", lambda *args: sought.append(args) or choose(*args)
    )
    monkeypatch.setattr(admitted_pods, "MAX_ADMITTED_PODS", 10)
    for number in range(40):
        world.add_node(f"n{number}")
    for number in range(60):
        world.ledger.pods.upsert(gated(f"p{number}"))
    world.decide()
    assert len(sought) == 5
    first, place = world.gates.opened[0]
    world.bind(first, place.node)
    world.decide()
    assert (len(sought), len(world.gates.opened)) == (6, 6)


def test_a_job_behind_pods_that_cannot_be_admitted_yet_is_considered(world, monkeypatch):
    """A tenant that keeps kube-scheduler from binding admitted pods blocks no gang."""
    monkeypatch.setattr(admitted_pods, "MAX_ADMITTED_PODS", 2)
    world.add_node("c", labels={"pool": "large"})
    world.ledger.pods.upsert(pod("other", on="c", devices=whole("c", 0, 1, 2, 3), gpus=4))
    for number in range(4):
        world.ledger.pods.upsert(gated(f"p{number}"))
    world.decide()
    spec = {"containers": [{"name": "worker"}], "nodeSelector": {"pool": "large"}}
    asked = world.asks("later", namespace="other", submitted=1767226000.0, gpus=4, pod_spec=spec)
    assert isinstance(asked, PlanRefusal)
    world.ledger.pods.remove(pod("other"))
    world.now += 0.5
    world.decide()
    assert world.called() == []
    world.now += 1
    world.decide()
    assert world.called() == ["later"]


def test_an_ungated_pod_waits_until_the_queue_has_admitted_what_fits(world):
    for number in range(40):
        world.add_node(f"n{number}")
    for number in range(100):
        world.ledger.pods.upsert(gated(f"p{number}"))
    world.ledger.changes.on_change()
    answer = world.try_filter(pod("visitor"))
    assert answer == "others are let in first"


def test_pending_pods_are_queued_again_after_a_change_of_leader(full):
    full.ledger.pods.upsert(gated("p"))
    full.decide()
    full.owner.observed.withdraw_all()
    full.decide()
    assert len(full.owner.observed) == 1


def unschedulable(shown, *, owners):
    """The same after kube-scheduler has looked at it in vain."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return msgspec.structs.replace(
        shown,
        status=msgspec.convert({"conditions": [condition]}, type(shown.status)),
        metadata=msgspec.structs.replace(shown.metadata, owner_references=owners),
    )


def test_a_pod_that_may_go_elsewhere_is_not_evicted_for_its_node(world):
    spec = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}
    world.ledger.pods.upsert(gated("p", spec=spec))
    world.decide()
    owners = (objects.OwnerReference(controller=True, kind="ReplicaSet"),)
    shown = opened(world, world.gates.opened[0][1])
    world.ledger.pods.upsert(unschedulable(shown, owners=owners))
    world.now += admitted_pods.SECONDS + 1
    world.ledger.expire()
    world.decide()
    assert list(world.owner.evictions()) == []


@pytest.mark.parametrize("owned", [True, False])
def test_a_pod_whose_node_cannot_take_it_is_evicted_for_its_controller_to_replace(world, owned):
    """It may go to no other node; one without a controller would be lost."""
    world.ledger.pods.upsert(gated("p"))
    world.decide()
    owners = (objects.OwnerReference(controller=True, kind="ReplicaSet"),) if owned else ()
    shown = opened(world, world.gates.opened[0][1])
    world.ledger.pods.upsert(shown)
    world.decide()
    assert list(world.owner.evictions()) == []
    world.ledger.pods.upsert(unschedulable(shown, owners=owners))
    world.decide()
    found = [each.name for each in world.owner.evictions()]
    assert found == (["p"] if owned else [])


@pytest.mark.parametrize("gone", [True, False])
def test_a_stranded_pod_without_a_controller_gets_a_condition_that_names_its_node(world, gone):
    world.ledger.pods.upsert(gated("p"))
    world.decide()
    shown = opened(world, world.gates.opened[0][1])
    world.ledger.pods.upsert(shown)
    assert world.owner.stranded_pods() == []
    if gone:
        world.ledger.nodes.remove(node("a"))
    world.ledger.pods.upsert(unschedulable(shown, owners=()))
    world.decide()
    (stranded,) = world.owner.stranded_pods()
    assert stranded.reason == ("NodeDeleted" if gone else "NodeUnsuitable")
    assert "delete the pod and create it again" in stranded.text


def test_a_pod_whose_node_returns_is_stranded_no_more_while_it_is_tried_again(world):
    world.ledger.pods.upsert(gated("p"))
    world.decide()
    shown = unschedulable(opened(world, world.gates.opened[0][1]), owners=())
    world.ledger.nodes.remove(node("a"))
    world.ledger.pods.upsert(shown)
    world.decide()
    (before,) = world.owner.stranded_pods()
    world.ledger.nodes.upsert(node("a"))
    assert world.owner.stranded_pods() == []
    world.now += admitted_pods.RETRY_SECONDS
    (after,) = world.owner.stranded_pods()
    assert (before.reason, after.reason) == ("NodeDeleted", "NodeUnsuitable")


def test_a_pod_with_a_stranded_condition_is_not_stranded_after_a_restart(world):
    world.ledger.pods.upsert(gated("p"))
    world.decide()
    shown = unschedulable(opened(world, world.gates.opened[0][1]), owners=())
    stranded = objects.Condition(type=names.STRANDED_CONDITION, status="True", reason="NodeDeleted")
    status = msgspec.structs.replace(shown.status, conditions=(*shown.status.conditions, stranded))
    world.ledger.pods.upsert(msgspec.structs.replace(shown, status=status))
    world.decide()
    assert world.owner.stranded_pods() == []


def test_a_stranded_pod_with_a_controller_is_evicted_without_a_condition(world):
    world.ledger.pods.upsert(gated("p"))
    world.decide()
    shown = opened(world, world.gates.opened[0][1])
    owners = (objects.OwnerReference(controller=True, kind="ReplicaSet"),)
    world.ledger.pods.upsert(unschedulable(shown, owners=owners))
    assert world.owner.stranded_pods() == []


def by_class(priority, policy):
    """More of a pod's spec, as admission writes it by the PriorityClass that the pod names."""
    return {"priority": priority, "preemptionPolicy": policy}


def test_a_pod_of_a_preempting_priority_class_overtakes_no_job(full):
    """Such as system-node-critical, which Kubernetes lets every namespace use."""
    full.asks("older", workers=2, gpus=4, submitted=1767225620.0, namespace="other")
    critical = by_class(2_000_001_000, "PreemptLowerPriority")
    full.ledger.pods.upsert(gated("late", created=30, spec=critical))
    full.decide()
    assert [job.name for job in full.owner.queue.jobs()] == ["older", "pod late"]
    full.ends("holder")
    full.decide()
    assert (full.called(), names_of(full)) == (["older"], [])


def test_a_pod_of_a_priority_class_that_never_preempts_goes_ahead(full):
    full.asks("older", workers=2, gpus=4, submitted=1767225620.0, namespace="other")
    full.ledger.pods.upsert(gated("urgent", created=30, spec=by_class(5, "Never")))
    full.decide()
    assert [job.name for job in full.owner.queue.jobs()] == ["pod urgent", "older"]
