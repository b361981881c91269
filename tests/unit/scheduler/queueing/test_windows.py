# SPDX-License-Identifier: Apache-2.0
"""GPUReservations: from the watch into the queue, to the operator, and into their statuses."""

import msgspec
import pytest
from extender_builders import job, pod, whole

from gpupack_crds.kinds import GpuQuota, GpuReservation
from gpupack_scheduler.queueing.windows.reserved_windows import id_of
from gpupack_scheduler.queueing.windows.window_status import reservation_status

MODEL = "H100"


def stamp(seconds):
    return f"1970-01-01T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"


@pytest.fixture
def world(world):
    """Namespace lab is guaranteed 4 GPUs."""
    meta = {"name": "default", "namespace": "lab", "uid": "q", "resourceVersion": "1"}
    spec = {"gpus": [{"model": "*", "nominal": 4}]}
    world.quotas.quotas.upsert(msgspec.convert({"metadata": meta, "spec": spec}, GpuQuota))
    return world


def reserve(world, name="day", namespace="lab", *, gpus=4, start=2000, end=3000, **spec):
    """The watch shows a reservation; its creation is at second 500."""
    built = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "generation": 1,
            "creationTimestamp": stamp(500),
        },
        "spec": {
            "model": MODEL,
            "startTime": stamp(start),
            "endTime": stamp(end),
            **({"gpus": gpus} if gpus else {}),
            **spec,
        },
    }
    item = msgspec.json.decode(msgspec.json.encode(built), type=GpuReservation)
    world.quotas.reservations.upsert(item)
    world.decide()
    return item


def at(world, second):
    world.now = float(second)
    world.decide()
    return world


def status(world, item):
    name, observed = id_of(item), world.owner.observed
    return reservation_status(
        item,
        observed.window_reports().get(name),
        observed.windows.problems.get(name),
        world.now,
    )


def conditions(world, item):
    return {each.type: (each.status, each.reason) for each in status(world, item).conditions}


def runs(world, name, on, *numbers, namespace="team"):
    shown = job(name, attempt=1, phase="Running", placed=[(on, numbers)], namespace=namespace)
    world.ledger.jobs.upsert(world.with_times(shown, startedAt=stamp(1000)))
    world.decide()


def stopped(world):
    return [
        (each.attempt, each.reason, each.namespace, each.pod) for each in world.turns.orders.stops
    ]


def test_a_reservation_is_held_from_its_start_to_its_end(world):
    item = reserve(world)
    assert (status(world, item).phase, status(world, item).gpus) == ("Upcoming", "4")
    assert conditions(world, item) == {
        "Accepted": ("True", "WithinQuota"),
        "Honored": ("True", "GpusFound"),
    }
    at(world, 2000)
    shown = status(world, item)
    assert (shown.phase, shown.held, shown.used, shown.missing) == ("Active", "4", "0", "0")
    assert (shown.window_start, shown.window_end) == (stamp(2000), stamp(3000))
    assert world.asks("large", gpus=4) is not None
    assert world.asks("other", gpus=4).reason == "ReservedForWindow"
    assert status(at(world, 3000), item).phase == "Ended"


def test_a_job_that_names_the_reservation_gets_its_gpus(world):
    reserve(world, gpus=8 // 2)
    at(world, 2000)
    world.asks("first", gpus=4)
    assert world.asks("foreign", gpus=4, reservation="day").reason == "ReservedForWindow"
    found = world.asks("ours", gpus=4, namespace="lab", reservation="day")
    assert len(found.placement) == 1


def test_only_the_named_users_get_the_gpus(world):
    reserve(world, users=["train-*"])
    at(world, 2000)
    world.asks("first", gpus=4)
    refused = world.asks("notebook", gpus=1, namespace="lab", reservation="day")
    assert refused.reason == "ReservedForWindow"
    assert world.asks("train-7", gpus=1, namespace="lab", reservation="day").placement


def test_attempts_in_the_way_are_ordered_to_end_when_the_window_begins(world):
    runs(world, "left", "a", 0, 1, 2, 3)
    runs(world, "right", "b", 0, 1)
    item = reserve(world)
    at(world, 1960)
    assert stopped(world) == []
    at(world, 1970)
    assert stopped(world) == [("uid-right/1", "TimeWindow", "lab", "day")]
    assert conditions(world, item)["Honored"] == ("False", "PreemptionPending")
    assert status(world, item).preempting == 1


def test_a_preemption_for_a_window_that_is_given_up_is_counted(world):
    runs(world, "left", "a", 0, 1, 2, 3)
    runs(world, "right", "b", 0, 1)
    reserve(world)
    at(world, 1970)
    preemptions = world.owner.observed.operations.preemptions
    assert preemptions.given_up == 0
    at(world, 2200)
    assert preemptions.given_up == 1


def test_pods_in_the_way_are_evicted(world):
    shown = pod("notebook", on="a", devices=whole("a", 0, 1, 2, 3), gpus=4)
    world.ledger.pods.upsert(shown)
    runs(world, "right", "b", 0, 1, 2, 3)
    reserve(world)
    at(world, 1970)
    (evicted,) = world.owner.evictions()
    assert (evicted.name, evicted.reason) == ("notebook", "TimeWindow")
    assert evicted.why == "for a reservation of another namespace, whose time window needs the GPUs"


def test_a_pod_uses_the_reservation_that_its_annotation_names(world):
    reserve(world)
    at(world, 2000)
    world.asks("first", gpus=4)
    ours = pod("ours", gpus=1, namespace="lab", annotations={"gpupack.dev/reservation": "day"})
    assert world.filter(ours).node_names
    assert not world.filter(pod("other", gpus=1, namespace="lab")).node_names


def test_more_than_the_quota_guarantees_is_refused_and_the_status_says_why(world):
    item = reserve(world, gpus=5)
    shown = status(world, item)
    assert shown.phase == "Refused"
    assert conditions(world, item) == {"Accepted": ("False", "QuotaExceeded")}
    assert "reserves 5 GPUs, and the quota of the namespace guarantees 4" in (
        shown.conditions[0].message
    )
    at(world, 2000)
    assert world.asks("large", workers=2, gpus=4).placement


def test_a_reservation_of_a_namespace_without_a_quota_is_refused(world):
    item = reserve(world, namespace="team", gpus=1)
    assert conditions(world, item) == {"Accepted": ("False", "QuotaExceeded")}


def test_a_larger_quota_makes_a_refused_reservation_stand(world):
    item = reserve(world, gpus=5)
    meta = {"name": "default", "namespace": "lab", "uid": "q", "resourceVersion": "2"}
    spec = {"gpus": [{"model": "*", "nominal": 5}]}
    world.quotas.quotas.upsert(msgspec.convert({"metadata": meta, "spec": spec}, GpuQuota))
    world.decide()
    assert status(world, item).phase == "Upcoming"


def test_a_window_that_cannot_be_read_is_refused_and_others_stand(world):
    wrong = reserve(world, "wrong", recurrence="FREQ=DAILY", timeZone="Mars/Olympus")
    right = reserve(world, "right")
    assert conditions(world, wrong) == {"Accepted": ("False", "InvalidWindow")}
    assert status(world, right).phase == "Upcoming"


def test_whole_nodes_are_reserved_as_nodes(world):
    item = reserve(world, gpus=None, nodes=1, gpusPerNode=4)
    runs(world, "left", "a", 0)
    runs(world, "right", "b", 0, 1)
    at(world, 1970)
    assert stopped(world) == [("uid-left/1", "TimeWindow", "lab", "day")]
    world.ends("left")
    at(world, 2000)
    assert status(world, item).gpus == "4"


def test_a_deleted_reservation_holds_nothing(world):
    item = reserve(world)
    at(world, 2000)
    world.asks("first", gpus=4)
    assert world.asks("second", gpus=4).reason == "ReservedForWindow"
    world.quotas.reservations.remove(item)
    world.decide()
    assert world.asks("second", gpus=4).placement


def test_a_repeated_window_follows_the_one_that_ends(world):
    item = reserve(world, recurrence="FREQ=DAILY")
    shown = status(at(world, 3000), item)
    assert (shown.phase, shown.window_start) == ("Upcoming", "1970-01-02T00:33:20Z")


def test_gpus_that_a_window_lacks_are_in_its_status(world):
    pods = [pod(f"p{n}", on=on, devices=whole(on, 0, 1, 2), gpus=3) for n, on in enumerate("ab")]
    for shown in pods:
        world.ledger.pods.upsert(shown)
    item = reserve(world)
    at(world, 2000)
    (first,) = world.owner.evictions()
    at(world, 2000 + 30 + 120)
    (second,) = world.owner.evictions()
    assert {first.name, second.name} == {"p0", "p1"}
    assert status(world, item).missing == "0"
    at(world, 2000 + 2 * (30 + 120))
    shown = status(world, item)
    assert shown.missing == "2"
    assert conditions(world, item)["Honored"][0] == "False"
