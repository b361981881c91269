# SPDX-License-Identifier: Apache-2.0
"""Pods of their own behind the queue's gate: who waits, who is let in, what a new leader finds."""

import datetime as dt

import msgspec
import pytest
from extender_builders import gated, node, pod, whole

from gpupack_crds import names
from gpupack_crds.plan import PlanRefusal
from gpupack_kubeclient import objects
from gpupack_scheduler.ledger import claims
from gpupack_scheduler.queueing import admissions, admitted_pods, gate
from gpupack_scheduler.queueing.request import pod_id
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


def test_a_pod_that_fits_is_let_in_and_its_place_is_held(world):
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
def test_who_depends_on_what_the_queue_does_not_know_keeps_all_nodes(world, spec):
    asked = gated("p", spec=spec)
    place = world.ledger.claims.allocation(place_on("a"))
    assert "affinity" not in gate.opening(asked, place)["spec"]


def test_a_pod_for_which_there_is_no_room_waits_and_goes_in_by_age_beside_jobs(full):
    full.ledger.pods.upsert(gated("late", created=30))
    full.ledger.pods.upsert(gated("early", created=20))
    assert isinstance(full.asks("between", submitted=1767225625.0), PlanRefusal)
    assert [job.name for job in full.admissions.queue.jobs()] == [
        "pod early",
        "between",
        "pod late",
    ]
    full.ends("holder")
    full.decide()
    assert (names_of(full), full.called()) == (["early", "late"], ["between"])


def test_room_is_kept_for_a_pod_that_has_waited_for_long(full):
    full.ledger.pods.upsert(gated("notebook", gpus=4))
    full.decide()
    full.now += 301
    full.ends("holder", nodes=["a"])
    full.ledger.pods.upsert(pod("other", on="b", devices=whole("b", 0), gpus=1))
    full.decide()
    assert names_of(full) == ["notebook"]


@pytest.mark.parametrize("gates", [("mine",), (names.QUEUE_GATE, "mine")])
def test_a_pod_that_waits_for_other_gates_is_not_let_in(world, gates):
    world.ledger.pods.upsert(gated("p", gates=gates))
    world.decide()
    assert (world.gates.opened, len(world.admissions)) == ([], 0)


@pytest.mark.parametrize("others", [(), ("mine",)])
def test_a_pod_waits_since_nothing_but_the_queue_keeps_it(full, others):
    full.now = 1_767_225_700
    full.ledger.pods.upsert(gated("p", created=20, gates=(names.QUEUE_GATE, *others)))
    full.decide()
    full.ledger.pods.upsert(gated("p", created=20))
    full.decide()
    entry = full.admissions.queue.state.pending.get("pod/uid-p")
    assert entry.pending_since == (full.now if others else entry.job.submitted)


def test_a_pod_that_leaves_waits_no_longer(full):
    full.ledger.pods.upsert(gated("p"))
    full.decide()
    assert len(full.admissions) == 1
    full.ledger.pods.remove(gated("p"))
    full.decide()
    assert len(full.admissions) == 0


def test_a_pod_whose_gate_somebody_else_opened_waits_no_longer(full):
    """It goes in when kube-scheduler asks about it, behind all who wait."""
    full.ledger.pods.upsert(gated("p"))
    full.decide()
    assert len(full.admissions) == 1
    full.ledger.pods.upsert(gated("p", gates=()))
    full.ends("holder")
    full.decide()
    assert (full.gates.opened, len(full.admissions)) == ([], 0)
    assert full.filter(pod("p")).node_names == ["a"]


def test_a_pod_whose_rules_are_too_long_to_keep_is_left_to_filter(world):
    selector = {f"label-{number}": "x" * 60 for number in range(40)}
    world.ledger.pods.upsert(gated("p", spec={"nodeSelector": selector}))
    world.decide()
    ((_, place),) = world.gates.opened
    assert (place, len(world.admissions)) == (None, 0)


def test_rules_about_nodes_are_kept(world):
    world.ledger.pods.upsert(
        gated("p", spec={"nodeSelector": {"kubernetes.io/hostname": "nowhere"}})
    )
    world.decide()
    assert (world.gates.opened, len(world.admissions)) == ([], 1)


def test_what_is_let_in_is_bound_to_its_place(world):
    world.ledger.pods.upsert(gated("p", gpus=2))
    world.decide()
    shown = opened(world, world.gates.opened[0][1])
    world.ledger.pods.upsert(shown)
    world.decide()
    assert world.filter(pod("p", gpus=2)).node_names == ["a"]
    world.bind(shown, "a")
    world.decide()
    assert (world.states(), world.running()) == (["bound"], ["pod p"])


def test_a_new_leader_holds_the_place_of_who_was_let_in(world):
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


def test_a_new_leader_keeps_room_for_a_pod_that_waited_before_it(full):
    full.now = moment = msgspec.convert("2026-01-01T00:00:01Z", dt.datetime).timestamp()
    full.ledger.pods.upsert(gated("p", gpus=4))
    full.decide()
    full.now += 301
    full.admissions.withdraw_all()
    full.decide()
    assert full.admissions.queue.state.pending.get(pod_id("uid-p")).pending_since == moment


def test_a_place_is_held_for_a_minute_and_not_again(world):
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
def test_a_place_that_cannot_be_read_or_is_not_there_holds_nothing(world, written):
    world.ledger.pods.upsert(
        gated("p", gates=(), annotations={names.PLACEMENT_ANNOTATION: written})
    )
    world.decide()
    assert world.states() == []


def test_a_place_for_other_gpus_than_the_pod_asks_for_holds_nothing(world):
    """Whoever could write the annotation would have them for a minute beside every quota."""
    place = world.ledger.claims.allocation(place_on("a"))
    written = gate.opening(gated("p"), place)["metadata"]["annotations"]
    world.ledger.pods.upsert(gated("p", gpus=4, gates=(), annotations=written))
    world.decide()
    assert world.states() == []


def test_no_more_are_let_in_at_once_than_are_soon_bound(world):
    for number in range(40):
        world.add_node(f"n{number}")
    for number in range(150):
        world.ledger.pods.upsert(gated(f"p{number}"))
    world.decide()
    most = admitted_pods.MAX_ADMITTED_PODS // 2
    assert (len(world.gates.opened), len(world.admissions)) == (most, 150 - most)


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


def test_a_place_is_free_as_soon_as_kube_scheduler_says_that_the_pod_cannot_go_there(world):
    world.ledger.pods.upsert(gated("p"))
    world.decide()
    shown = opened(world, world.gates.opened[0][1])
    world.ledger.pods.upsert(shown)
    world.decide()
    assert world.states() == ["assumed"]
    world.ledger.pods.upsert(unschedulable(shown, owners=()))
    world.decide()
    assert (world.states(), world.running()) == ([], [])


def test_no_place_is_sought_for_more_pods_than_can_go_in(world, monkeypatch):
    """Each end of a Binding would cost one search for each pod of a cycle, all but one in vain."""
    sought = []
    choose = admissions.place_by_policy
    monkeypatch.setattr(
        admissions, "place_by_policy", lambda *args: sought.append(args) or choose(*args)
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


def test_a_job_is_looked_at_behind_pods_that_cannot_go_in_yet(world, monkeypatch):
    """Whoever keeps kube-scheduler from binding what is let in holds up no gang."""
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


def test_who_asks_through_filter_waits_until_the_queue_has_let_in_whom_it_can(world):
    for number in range(40):
        world.add_node(f"n{number}")
    for number in range(100):
        world.ledger.pods.upsert(gated(f"p{number}"))
    world.ledger.changes.on_change()
    answer = world.try_filter(pod("visitor"))
    assert answer == "others are let in first"


def test_when_another_leads_pods_that_wait_are_looked_at_anew(full):
    full.ledger.pods.upsert(gated("p"))
    full.decide()
    full.admissions.withdraw_all()
    full.decide()
    assert len(full.admissions) == 1


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
    assert list(world.admissions.evictions()) == []


@pytest.mark.parametrize("owned", [True, False])
def test_a_pod_whose_node_cannot_take_it_any_more_is_made_anew_by_its_controller(world, owned):
    """It may go to no other node; one without a controller would be lost."""
    world.ledger.pods.upsert(gated("p"))
    world.decide()
    owners = (objects.OwnerReference(controller=True, kind="ReplicaSet"),) if owned else ()
    shown = opened(world, world.gates.opened[0][1])
    world.ledger.pods.upsert(shown)
    world.decide()
    assert list(world.admissions.evictions()) == []
    world.ledger.pods.upsert(unschedulable(shown, owners=owners))
    world.decide()
    found = [each.name for each in world.admissions.evictions()]
    assert found == (["p"] if owned else [])


@pytest.mark.parametrize("gone", [True, False])
def test_one_without_a_controller_is_told_that_it_waits_for_that_node_alone(world, gone):
    world.ledger.pods.upsert(gated("p"))
    world.decide()
    shown = opened(world, world.gates.opened[0][1])
    world.ledger.pods.upsert(shown)
    assert world.admissions.stranded_pods() == []
    if gone:
        world.ledger.nodes.remove(node("a"))
    world.ledger.pods.upsert(unschedulable(shown, owners=()))
    world.decide()
    (stranded,) = world.admissions.stranded_pods()
    assert stranded.reason == ("NodeDeleted" if gone else "NodeUnsuitable")
    assert "delete the pod and create it again" in stranded.text


def test_a_pod_whose_node_returns_is_stranded_no_more_while_it_is_tried_again(world):
    world.ledger.pods.upsert(gated("p"))
    world.decide()
    shown = unschedulable(opened(world, world.gates.opened[0][1]), owners=())
    world.ledger.nodes.remove(node("a"))
    world.ledger.pods.upsert(shown)
    world.decide()
    (before,) = world.admissions.stranded_pods()
    world.ledger.nodes.upsert(node("a"))
    assert world.admissions.stranded_pods() == []
    world.now += admitted_pods.RETRY_SECONDS
    (after,) = world.admissions.stranded_pods()
    assert (before.reason, after.reason) == ("NodeDeleted", "NodeUnsuitable")


def test_after_a_restart_the_node_of_a_pod_that_was_told_so_has_returned(world):
    world.ledger.pods.upsert(gated("p"))
    world.decide()
    shown = unschedulable(opened(world, world.gates.opened[0][1]), owners=())
    told = objects.Condition(type=names.STRANDED_CONDITION, status="True", reason="NodeDeleted")
    status = msgspec.structs.replace(shown.status, conditions=(*shown.status.conditions, told))
    world.ledger.pods.upsert(msgspec.structs.replace(shown, status=status))
    world.decide()
    assert world.admissions.stranded_pods() == []


def test_one_with_a_controller_is_evicted_and_not_told(world):
    world.ledger.pods.upsert(gated("p"))
    world.decide()
    shown = opened(world, world.gates.opened[0][1])
    owners = (objects.OwnerReference(controller=True, kind="ReplicaSet"),)
    world.ledger.pods.upsert(unschedulable(shown, owners=owners))
    assert world.admissions.stranded_pods() == []


def by_class(priority, policy):
    """More of a pod's spec, as admission writes it by the PriorityClass that the pod names."""
    return {"priority": priority, "preemptionPolicy": policy}


def test_a_pod_of_a_class_that_evicts_others_goes_before_nobody_in_the_queue(full):
    """Such as system-node-critical, which Kubernetes lets every namespace use."""
    full.asks("older", workers=2, gpus=4, submitted=1767225620.0, namespace="other")
    critical = by_class(2_000_001_000, "PreemptLowerPriority")
    full.ledger.pods.upsert(gated("late", created=30, spec=critical))
    full.decide()
    assert [job.name for job in full.admissions.queue.jobs()] == ["older", "pod late"]
    full.ends("holder")
    full.decide()
    assert (full.called(), names_of(full)) == (["older"], [])


def test_a_pod_of_a_class_that_evicts_nobody_goes_ahead(full):
    full.asks("older", workers=2, gpus=4, submitted=1767225620.0, namespace="other")
    full.ledger.pods.upsert(gated("urgent", created=30, spec=by_class(5, "Never")))
    full.decide()
    assert [job.name for job in full.admissions.queue.jobs()] == ["pod urgent", "older"]
