# SPDX-License-Identifier: Apache-2.0
"""Pod groups: their members start together, and are preempted together."""

import dataclasses
import uuid

import msgspec
import pytest
from extender_builders import World, gated, gpu_node, pod, whole

from gpupack_crds import names
from gpupack_crds.gpujob_status import Victims
from gpupack_crds.kinds import GpuQuota
from gpupack_kubeclient import objects
from gpupack_scheduler.queueing.pending import gate, pod_groups
from gpupack_scheduler.queueing.pending.request import group_id
from gpupack_scheduler.queueing.pods import admitted_pods, partial_groups
from gpupack_scheduler.queueing.settings import QueueSettings
from gpupack_scheduler.requests.pod_groups import GangKey, GroupKey

STARTED = 1_767_225_600.0
"""The minute in which `gated` creates pods."""


@pytest.fixture
def world():
    """Two nodes of four GPUs, nothing held, when the first pods have just been created."""
    return new_world()


def new_world(nodes=("a", "b"), **preemption):
    built = World()
    built.now = STARTED + 30
    settings = {"preemption": {"minRunSeconds": 0} | preemption}
    built.decisions = dataclasses.replace(
        built.decisions, queue=msgspec.convert(settings, QueueSettings)
    )
    built.use(built.new_ledger())
    for name in nodes:
        built.add_node(name)
    return built


def member(name, *, least=4, group="ring", labels=None, annotations=None, owned=True, **changes):
    """A member behind the gate; `least`: how many start together."""
    owners = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "controller": True}]
    return gated(
        name,
        labels={names.POD_GROUP_LABEL: group} | (labels or {}),
        annotations=({names.MIN_MEMBERS_ANNOTATION: str(least)} if least else {})
        | (annotations or {}),
        ownerReferences=owners if owned else [],
        **changes,
    )


def add(world, *pods):
    for each in pods:
        world.ledger.pods.upsert(each)
    world.decide()


def members(number, **changes):
    return [member(f"m-{each}", **changes) for each in range(number)]


def opened(world):
    return [each.metadata.name for each, _ in world.gates.opened]


def shown(world, name):
    """The member as the watch shows it once its gate is open."""
    asked, place = next(each for each in world.gates.opened[::-1] if each[0].metadata.name == name)
    patch = gate.opening(asked, place, world.gates.members[name])
    metadata = msgspec.structs.replace(
        asked.metadata, annotations=asked.metadata.annotations | patch["metadata"]["annotations"]
    )
    spec = msgspec.structs.replace(asked.spec, scheduling_gates=())
    return msgspec.structs.replace(asked, metadata=metadata, spec=spec)


def start(world, *names_):
    """Open gates as the watch shows them, and bind; return the bound pods by name."""
    bound = {}
    for name in names_:
        open_pod = shown(world, name)
        world.ledger.pods.upsert(open_pod)
        _, place = next(e for e in world.gates.opened[::-1] if e[0].metadata.name == name)
        bound[name] = world.bind(open_pod, place.node)
    world.decide()
    return bound


def deleting(bound):
    metadata = msgspec.structs.replace(
        bound.metadata, deletion_timestamp=bound.metadata.creation_timestamp
    )
    return msgspec.structs.replace(bound, metadata=metadata)


def why(world, name):
    asked = world.ledger.pods.gated[f"uid-{name}"]
    return world.owner.explain_pod(asked)


def restarted(world, *pods, nodes=("a", "b")):
    """A new leader, which sees these pods."""
    world.use(world.new_ledger())
    for name in nodes:
        world.add_node(name)
    add(world, *pods)


def test_no_member_is_admitted_before_the_minimum_exists(world):
    add(world, *members(3))
    assert (opened(world), len(world.owner.observed), world.states()) == ([], 0, [])
    assert why(world, "m-0") == "waits for members of pod group ring: 3 of 4 exist"
    assert world.owner.observed.obstacle_reason("uid-m-0") == "WaitingForMembers"


def test_all_members_are_admitted_by_one_decision(world):
    add(world, *members(3))
    add(world, member("m-3"))
    assert sorted(opened(world)) == ["m-0", "m-1", "m-2", "m-3"]
    assert {each.members for each in world.gates.members.values()} == {4}
    assert len({each.gang for each in world.gates.members.values()}) == 1
    assert world.running() == ["pod group ring"]


def test_a_group_that_does_not_fit_holds_nothing(world):
    world.asks("holder", gpus=1)
    add(world, *members(4, gpus=2))
    assert (opened(world), len(world.owner.observed)) == ([], 1)
    assert sum(len(world.free(each)) for each in "ab") == 7
    assert "does not fit" in why(world, "m-3")
    world.ends("holder")
    world.written("holder")
    world.ends("holder")
    world.decide()
    assert len(opened(world)) == 4


def test_members_with_different_requests_start_together(world):
    add(world, member("leader", gpus=1, least=3), *members(2, gpus=3, least=3))
    assert sorted(opened(world)) == ["leader", "m-0", "m-1"]
    assert [world.free(each) for each in "ab"].count([]) == 1


def test_groups_of_two_namespaces_with_one_name_are_two(world):
    add(world, *members(2), *(member(f"o-{n}", namespace="other") for n in range(2)))
    assert opened(world) == []
    assert why(world, "m-0") == "waits for members of pod group ring: 2 of 4 exist"


def by_class(priority):
    return {"priority": priority, "preemptionPolicy": "Never"}


def test_members_of_different_priorities_are_refused(world):
    add(world, *members(3), member("m-3", spec=by_class(5)))
    assert opened(world) == []
    text = "pod group ring: its members have different priorities; give all of them the same"
    assert why(world, "m-0").startswith(text)
    assert world.owner.observed.obstacle_reason("uid-m-0") == "InvalidPodGroup"


@pytest.mark.parametrize(
    ("least", "text"),
    [
        ("", "has no annotation gpupack.dev/min-members"),
        ("0", "gpupack.dev/min-members is 0, not a number from 1 to 1024"),
        ("1025", "gpupack.dev/min-members is 1025, not a number from 1 to 1024"),
        ("many", "gpupack.dev/min-members is many, not a number from 1 to 1024"),
        ("9" * 99, "…, not a number from 1 to 1024"),
    ],
)
def test_a_member_without_a_valid_minimum_is_refused(world, least, text):
    add(world, *members(2, least=least))
    assert opened(world) == []
    assert text in why(world, "m-0")


def test_members_that_name_different_minimums_are_refused(world):
    add(world, *members(2, least=2), member("other", least=3))
    assert opened(world) == []
    assert "its members name different minimums (2, 3)" in why(world, "m-0")


def test_a_member_that_cannot_be_queued_keeps_the_others_from_starting(world):
    """It would be left to filter alone, and so the group would start in part."""
    selector = {f"label-{number}": "x" * 60 for number in range(40)}
    add(world, *members(3), member("m-3", spec={"nodeSelector": selector}))
    assert opened(world) == []
    assert "pod m-3 cannot be queued" in why(world, "m-0")


def test_a_late_member_joins_the_running_gang_by_itself(world):
    add(world, *members(4))
    start(world, "m-0", "m-1", "m-2", "m-3")
    add(world, member("m-4", created=40.0))
    assert opened(world)[-1] == "m-4"
    first, late = (world.gates.members[each] for each in ("m-0", "m-4"))
    assert (late.gang, late.members) == (first.gang, 1)
    assert world.running() == ["pod group ring"]
    start(world, "m-4")
    assert world.running() == ["pod group ring"]


def test_members_beyond_the_minimum_wait_for_the_gang_and_cost_it_nothing(world):
    world.asks("holder", gpus=4)
    add(world, *members(6))
    assert sorted(opened(world)) == ["m-0", "m-1", "m-2", "m-3"]
    assert "does not fit" in why(world, "m-5")


def test_a_replacement_goes_to_the_place_of_the_failed_member(world):
    world.asks("other", gpus=1)
    add(world, *members(4, gpus=1))
    bound = start(world, "m-0", "m-1", "m-2", "m-3")
    gone = bound["m-3"]
    where = gone.spec.node_name
    world.ledger.pods.remove(gone)
    world.decide()
    assert world.running().count("pod group ring") == 1
    world.add_node("c", gpus=8)
    add(world, member("m-9", created=50.0))
    _, place = world.gates.opened[-1]
    assert (opened(world)[-1], place.node) == ("m-9", where)
    assert world.gates.members["m-9"].gang == world.gates.members["m-0"].gang


def test_the_survivors_of_a_failed_node_keep_running(world):
    add(world, *members(4, gpus=2))
    bound = start(world, "m-0", "m-1", "m-2", "m-3")
    lost = [each for each in bound.values() if each.spec.node_name == "b"]
    for each in lost:
        world.ledger.pods.remove(each)
    world.ledger.nodes.remove(world.ledger.nodes.items["b"])
    replaced = [member(f"r-{n}", gpus=2, created=55.0) for n in range(len(lost))]
    add(world, *replaced)
    assert list(world.owner.evictions()) == []
    assert world.running() == ["pod group ring"]
    world.now += 500
    assert list(world.owner.evictions()) == []
    world.add_node("c")
    world.decide()
    assert sorted(opened(world)[-2:]) == ["r-0", "r-1"]


def test_a_new_leader_opens_the_rest_before_other_jobs_get_its_gpus(world):
    """Two of four gates were open when the extender died; an older job waits for its GPUs."""
    add(world, *members(4, gpus=2))
    started = [shown(world, each) for each in ("m-0", "m-1")]
    world.now += 5
    older = gated("older", gpus=2, created=0.0, namespace="other")
    restarted(world, *started, *members(4, gpus=2)[2:], older)
    assert sorted(opened(world)) == ["m-2", "m-3"]
    assert world.running() == ["pod group ring"]
    gangs = {world.gates.members[each].gang for each in ("m-2", "m-3")}
    assert gangs == {gate.written_place(started[0]).group.gang}


def test_a_part_whose_rest_cannot_start_is_evicted(world):
    add(world, *members(4, gpus=2))
    started = [shown(world, each) for each in ("m-0", "m-1")]
    world.now += 500
    restarted(world, *started, *members(4, gpus=2)[2:], nodes=("a",))
    assert opened(world) == []
    assert list(world.owner.evictions()) == []
    world.now += partial_groups.PATIENCE_SECONDS + 1
    found = [(each.name, each.reason) for each in world.owner.evictions()]
    assert found == [("m-0", "PodGroupIncomplete"), ("m-1", "PodGroupIncomplete")]


def test_a_member_that_waits_beyond_the_minimum_is_no_rest_of_an_admission(world):
    """When another fails later, the survivors are not taken for a part that was left."""
    world.asks("holder", gpus=4)
    add(world, *members(6))
    bound = start(world, "m-0", "m-1", "m-2", "m-3")
    survivors = [each for name, each in bound.items() if name != "m-1"]
    restarted(world, *survivors, *members(6, gpus=4)[4:], nodes=("a",))
    world.now += partial_groups.PATIENCE_SECONDS + 1
    world.decide()
    assert list(world.owner.evictions()) == []


def test_a_pod_that_gets_the_label_while_it_waits_is_a_member(world):
    world.asks("holder", workers=2, gpus=4)
    add(world, gated("m-0"))
    add(world, member("m-0"))
    world.written("holder")
    world.ends("holder")
    world.decide()
    assert (opened(world), len(world.owner.observed)) == ([], 0)
    add(world, gated("m-0"))
    assert opened(world) == ["m-0"]


def test_a_late_member_that_loses_the_label_waits_alone(world):
    add(world, *members(4, gpus=2))
    start(world, "m-0", "m-1", "m-2", "m-3")
    add(world, member("m-4", gpus=2, created=40.0))
    add(world, gated("m-4", gpus=2, created=40.0))
    assert [job.name for job in world.owner.queue.jobs()] == ["pod m-4"]


def test_a_new_leader_counts_running_members_as_one_holder(world):
    add(world, *members(4))
    bound = start(world, "m-0", "m-1", "m-2", "m-3")
    restarted(world, *bound.values())
    assert world.running() == ["pod group ring"]


def test_a_new_leader_reads_what_waits_from_the_pods(world):
    world.asks("holder", gpus=4)
    waiting = members(4, gpus=2)
    add(world, *waiting)
    world.owner.observed.withdraw_all()
    world.decide()
    assert [job.name for job in world.owner.queue.jobs()] == ["pod group ring"]


def test_a_gate_that_could_not_be_opened_is_opened_by_the_rest_of_the_group(world):
    add(world, *members(4))
    start(world, "m-0", "m-1", "m-2")
    world.ledger.release(world.ledger.claims.pods["uid-m-3"])
    world.ledger.changes.gate("uid-m-3")
    world.decide()
    assert opened(world)[4:] == ["m-3"]


def quota(world, nominal):
    meta = {"name": "default", "namespace": "owner", "uid": "q", "resourceVersion": "1"}
    spec = {"gpus": [{"model": "*", "nominal": nominal}]}
    world.quotas.quotas.upsert(msgspec.convert({"metadata": meta, "spec": spec}, GpuQuota))


def test_all_members_are_victims_together(world):
    quota(world, 1)
    add(world, *members(4, gpus=2))
    bound = start(world, "m-0", "m-1", "m-2", "m-3")
    world.now += 10
    wanted = gated("mine", namespace="owner", created=55.0)
    add(world, wanted)
    _, preemption = world.gates.recorded[-1]
    assert [each.attempts for each in preemption.victims] == [("group/uid-m-0",)]
    metadata = msgspec.structs.replace(
        wanted.metadata, annotations={names.PREEMPTION_ANNOTATION: gate.text_of(preemption)}
    )
    add(world, msgspec.structs.replace(wanted, metadata=metadata))
    assert sorted(each.name for each in world.owner.evictions()) == ["m-0", "m-1", "m-2", "m-3"]
    # While they end, replacements wait for one another, and not for the gang that ends.
    world.ledger.pods.upsert(deleting(bound["m-0"]))
    add(world, member("n-0", gpus=2, created=56.0))
    assert why(world, "n-0") == "waits for members of pod group ring: 1 of 4 exist"
    assert sorted(each.name for each in world.owner.evictions()) == ["m-1", "m-2", "m-3"]
    for each in bound.values():
        world.ledger.pods.remove(each)
    world.decide()
    assert "mine" in opened(world)


def test_a_group_preempts_by_the_annotation_of_one_member(world):
    quota(world, 4)
    guests = [
        pod(f"web-{on}", namespace="guest", on=on, devices=whole(on, 0, 1, 2, 3), gpus=4)
        for on in "ab"
    ]
    add(world, *guests)
    world.now += 10
    waiting = [member(f"m-{n}", namespace="owner") for n in range(4)]
    add(world, *waiting)
    asked, preemption = world.gates.recorded[-1]
    assert asked.metadata.name == "m-0"
    annotations = asked.metadata.annotations | {
        names.PREEMPTION_ANNOTATION: gate.text_of(preemption)
    }
    metadata = msgspec.structs.replace(asked.metadata, annotations=annotations)
    written = msgspec.structs.replace(asked, metadata=metadata)
    add(world, written)
    (victim,) = world.owner.evictions()
    # A new leader finds the preemption.
    world.use(world.new_ledger())
    world.add_node("a")
    world.add_node("b")
    quota(world, 4)
    add(world, *guests, written, *waiting[1:])
    assert [each.name for each in world.owner.evictions()] == [victim.name]
    world.ledger.pods.remove(next(e for e in guests if e.metadata.name == victim.name))
    world.decide()
    assert sorted(opened(world)) == ["m-0", "m-1", "m-2", "m-3"]


def test_a_running_pod_that_gets_the_label_is_no_member(world):
    """Its author could else change how it is preempted."""
    bound = pod("p", on="a", devices=whole("a", 0), labels={names.POD_GROUP_LABEL: "ring"})
    add(world, bound)
    assert world.running() == ["pod p"]


def test_a_group_larger_than_the_limit_of_pods_is_admitted_at_once(world, monkeypatch):
    monkeypatch.setattr(admitted_pods, "MAX_ADMITTED_PODS", 2)
    add(world, *members(8, least=8))
    assert len(opened(world)) == 8


def test_unbound_members_of_one_namespace_leave_space_for_those_of_others(world, monkeypatch):
    monkeypatch.setattr(admitted_pods, "MAX_ADMITTED_MEMBERS", 6)
    add(world, *members(3, least=3))
    add(world, *(member(f"n-{n}", least=2, group="second") for n in range(2)))
    assert len(opened(world)) == 3
    add(world, *(member(f"o-{n}", least=1, group="third", namespace="other") for n in range(1)))
    assert opened(world)[3:] == ["o-0"]


def test_groups_of_one_namespace_are_limited(world, monkeypatch):
    monkeypatch.setattr(pod_groups, "MAX_GROUPS", 2)
    pods = [member(f"m-{n}", group=f"g-{n}") for n in range(3)]
    add(world, *pods)
    assert why(world, "m-2") == "2 other pod groups of its namespace wait"
    world.ledger.pods.remove(pods[0])
    world.decide()
    world.decide()
    assert why(world, "m-2") == "waits for members of pod group g-2: 1 of 4 exist"


def test_members_of_one_group_are_limited(world, monkeypatch):
    monkeypatch.setattr(pod_groups, "MAX_MEMBERS", 2)
    pods = members(3)
    add(world, *pods)
    assert why(world, "m-2") == "pod group ring has 2 other members that wait"
    world.ledger.pods.remove(pods[0])
    world.decide()
    world.decide()
    assert why(world, "m-2") == "waits for members of pod group ring: 2 of 4 exist"


def test_a_member_that_leaves_waits_no_longer(world):
    world.asks("holder", gpus=1)
    pods = members(4, gpus=2)
    add(world, *pods)
    assert len(world.owner.observed) == 1
    world.ledger.pods.remove(pods[0])
    world.decide()
    assert len(world.owner.observed) == 0
    for each in pods[1:]:
        world.ledger.pods.remove(each)
    world.decide()
    assert len(world.owner.observed.submissions.groups._gated) == 0


def test_the_maintenance_of_a_node_evicts_only_the_members_there(world):
    add(world, *members(4, gpus=2))
    bound = start(world, "m-0", "m-1", "m-2", "m-3")
    there = sorted(n for n, each in bound.items() if each.spec.node_name == "b")
    maintenance = [{"drain": "All", "reason": "new fans"}]
    world.ledger.gpus.upsert(gpu_node("b", maintenance=maintenance))
    world.decide()
    assert sorted(each.name for each in world.owner.evictions()) == there


def test_an_unbound_member_counts_as_started(world):
    """Its place is held for a limited time, and kube-scheduler may still bind it."""
    add(world, *members(4))
    for each in ("m-0", "m-1", "m-2", "m-3"):
        world.ledger.pods.upsert(shown(world, each))
    world.decide()
    world.now += 500
    world.ledger.expire()
    add(world, member("m-4", created=59.0))
    assert world.gates.members["m-4"].members == 1


def test_a_status_has_space_for_the_name_of_a_gang_among_victims():
    """The name of a group has up to 63 characters, and its namespace, too."""
    key = GroupKey("n" * 63, "gpupack.dev", "g" * 63)
    victim = group_id(GangKey(key, str(uuid.uuid4())))
    built = {"reason": "Priority", "attempts": [victim]}
    assert msgspec.convert(built, Victims).attempts == (victim,)


def test_every_member_names_its_gang_in_the_annotation_with_its_place(world):
    add(world, *members(4))
    place = gate.written_place(shown(world, "m-2"))
    assert (place.group.source, place.group.name) == ("gpupack.dev", "ring")
    assert place.group.at == int(world.now)
    assert isinstance(shown(world, "m-2"), objects.Pod)
