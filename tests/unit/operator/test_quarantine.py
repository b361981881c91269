# SPDX-License-Identifier: Apache-2.0
"""Quarantine of GPUs, and its duration."""

import msgspec
import pytest
from msgspec import structs

from gpupack_crds.gpunode import MAX_RELAPSES, Quarantine
from gpupack_crds.kinds import GpuNode
from gpupack_crds.mig import MigGpu
from gpupack_operator.decision.quarantine import Rules, decide_entries, needs_decision
from gpupack_operator.metrics import Metrics
from gpupack_operator.quarantines import AGAIN_SECONDS, Quarantines, quarantine_events
from gpupack_operator.removed_gpus import MAX_REMOVED

PROBATION = 600.0
PATH = "/apis/gpupack.dev/v1beta1/gpunodes/a"


def node(*health, quarantine=(), mode="owned", name="a", of="", **device):
    """Make a GPUNode with these GPUs and entries; `of`: UID of the Node that owns it."""
    devices = [
        {
            "uuid": f"GPU-{number}",
            "index": number,
            "model": "H200",
            "memoryMiB": 143771,
            "health": said,
            "cause": "XID 79" if said != "Healthy" else "",
            **device,
        }
        for number, said in enumerate(health)
    ]
    meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": "3"}
    if of:
        meta["ownerReferences"] = [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": of}]
    spec = {"quarantine": msgspec.to_builtins(list(quarantine))}
    status = {"mode": mode, "devices": devices}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, GpuNode)


@pytest.fixture
def look(build):
    """Return the entries of a node at a second, and the seconds until the next check."""

    def at(seconds, *health, before=(), **fields):
        seen = node(*health, quarantine=before, **fields)
        entries, again = decide_entries(seen, build.at(seconds), Rules(PROBATION))
        return entries, again and (again - build.at(seconds)).total_seconds()

    return at


def phases(entries):
    return [(each.gpu, each.phase, each.relapses) for each in entries]


@pytest.mark.parametrize("health", ["Cordoned", "Failed"])
def test_an_unhealthy_gpu_is_quarantined_with_its_cause(look, build, health):
    (entry,), again = look(0, "Healthy", health)
    assert (entry.gpu, entry.phase, entry.cause) == ("GPU-1", "Quarantined", "XID 79")
    assert (entry.since[:19], again) == (build.stamp(0)[:19], None)


def test_a_degraded_gpu_is_not_quarantined(look):
    assert look(0, "Degraded") == ((), None)


def test_a_gpu_stays_quarantined_while_it_is_unhealthy(look):
    first, _ = look(0, "Failed")
    assert look(99_999, "Failed", before=first) == (first, None)
    assert look(99_999, "Cordoned", before=first) == (first, None)


def test_a_recovered_gpu_goes_on_probation_and_is_then_released(look):
    first, _ = look(0, "Failed")
    second, again = look(100, "Healthy", before=first)
    assert (phases(second), again) == ([("GPU-0", "Probation", 0)], PROBATION)
    third, again = look(101, "Degraded", before=second)
    assert (third, again) == (second, PROBATION - 1)
    assert look(100 + PROBATION, "Healthy", before=second) == ((), None)


def test_each_relapse_makes_the_next_probation_twice_as_long(look):
    entries, _ = look(0, "Failed")
    for relapses in range(3):
        entries, again = look(0, "Healthy", before=entries)
        assert again == PROBATION * 2**relapses
        entries, _ = look(0, "Failed", before=entries)
        assert phases(entries) == [("GPU-0", "Quarantined", relapses + 1)]


def test_relapses_and_probation_are_limited(look):
    entries, _ = look(0, "Failed")
    for _ in range(2 * MAX_RELAPSES):
        entries, again = look(0, "Healthy", before=entries)
        entries, _ = look(0, "Failed", before=entries)
    assert entries[0].relapses == MAX_RELAPSES
    assert again == PROBATION * 2**8


def test_entries_stay_before_the_first_scan_of_an_agent(look):
    first, _ = look(0, "Failed")
    kept, _ = look(1, before=first)
    assert [each.gpu for each in kept] == ["GPU-0"]


def test_the_entry_of_a_gpu_that_is_no_longer_listed_is_removed(look):
    first, _ = look(0, "Healthy", "Failed")
    assert look(1, "Healthy", before=first) == ((), None)


def test_a_hanging_driver_quarantines_no_gpu(look):
    assert look(0, "Cordoned", causes=["NotInspected"]) == ((), None)


def test_an_unhealthy_mig_slice_quarantines_its_gpu(look):
    entries, _ = look(0, "Failed", "Failed", migParent="GPU-9")
    assert [each.gpu for each in entries] == ["GPU-9"]


def test_a_mig_gpu_without_slices_keeps_its_entry(build):
    entry = Quarantine(gpu="GPU-9", cause="XID 79", since=build.stamp(0))
    seen = node("Healthy", quarantine=[entry])
    cut = msgspec.structs.replace(seen.status, mig_gpus=(MigGpu(gpu="GPU-9"),))
    uncut = msgspec.structs.replace(seen, status=cut)
    assert decide_entries(uncut, build.at(9), Rules(PROBATION)) == ((entry,), None)


def test_gpus_of_an_observed_node_are_not_quarantined(look):
    assert look(0, "Failed", mode="observed") == ((), None)


def test_only_nodes_that_need_a_decision_are_kept():
    rules = Rules(PROBATION)
    assert not needs_decision(node("Healthy", "Degraded"), rules)
    assert needs_decision(node("Healthy", "Failed"), rules)
    assert needs_decision(node("Healthy", quarantine=[Quarantine(gpu="GPU-0")]), rules)


def test_each_step_causes_an_event_for_administrators(look):
    first, _ = look(0, "Failed")
    second, _ = look(100, "Healthy", before=first)
    said = [
        *quarantine_events((), first),
        *quarantine_events(first, second),
        *quarantine_events(second, ()),
    ]
    assert [each.reason for each in said] == ["Quarantined", "Probation", "Released"]
    assert said[0].note == "GPU-0 gets no new work: XID 79"


@pytest.fixture
def quarantines(server, build):
    clock = {"now": 0}
    made = Quarantines(
        server.api,
        reporter="o",
        rules=Rules(PROBATION),
        now=lambda: build.at(clock["now"]),
        metrics=Metrics(),
    )
    made.clock = clock
    return made


def written(server):
    return server.objects[PATH]["spec"]["quarantine"]


async def test_a_change_is_written_once_with_an_event(server, quarantines):
    server.put(PATH, {"metadata": {"name": "a", "resourceVersion": "3"}, "spec": {}})
    quarantines.upsert(node("Failed"))
    await quarantines.write_changes()
    (entry,) = written(server)
    assert (entry["gpu"], entry["cause"]) == ("GPU-0", "XID 79")
    assert next(path for verb, path in server.writes if verb == "POST").endswith("default/events")
    quarantines.clock["now"] = 100
    quarantines.upsert(node("Failed", quarantine=msgspec.convert([entry], list[Quarantine])))
    await quarantines.write_changes()
    assert server.names("PATCH") == [PATH]


async def test_probation_ends_without_an_event_of_the_watch(server, quarantines, build):
    server.put(PATH, {"metadata": {"name": "a", "resourceVersion": "3"}, "spec": {}})
    entry = Quarantine(gpu="GPU-0", phase="Probation", since=build.stamp(0))
    quarantines.upsert(node("Healthy", quarantine=[entry]))
    for moment in (0, PROBATION - 1):
        quarantines.clock["now"] = moment
        await quarantines.write_changes()
        assert server.names("PATCH") == []
    quarantines.clock["now"] = PROBATION
    await quarantines.write_changes()
    assert written(server) is None


async def test_a_failed_write_is_retried(server, quarantines):
    server.put(PATH, {"metadata": {"name": "a", "resourceVersion": "3"}, "spec": {}})
    quarantines.upsert(node("Failed"))
    server.down = True
    await quarantines.write_changes()
    server.down = False
    quarantines.clock["now"] = AGAIN_SECONDS
    await quarantines.write_changes()
    assert len(written(server)) == 1


async def test_a_deleted_node_is_not_written(server, quarantines):
    quarantines.upsert(node("Failed"))
    quarantines.remove(node("Failed"))
    await quarantines.write_changes()
    assert server.writes == []


@pytest.mark.parametrize("name", ["a", "b"])
async def test_a_gpu_of_a_removed_node_stays_quarantined_on_any_node(
    server, quarantines, build, name
):
    path = PATH.removesuffix("a") + name
    server.put(path, {"metadata": {"name": name, "resourceVersion": "3"}, "spec": {}})
    entry = Quarantine(gpu="GPU-1", cause="XID 79", since=build.stamp(0), relapses=2)
    gone = node("Healthy", "Failed", quarantine=[entry], of="uid-1")
    quarantines.replace([gone])
    quarantines.remove(gone)
    for shown in (node(name=name, of="uid-2"), node("Healthy", "Failed", name=name, of="uid-2")):
        quarantines.upsert(shown)
        await quarantines.write_changes()
    (kept,) = server.objects[path]["spec"]["quarantine"]
    assert (kept["gpu"], kept["relapses"]) == ("GPU-1", 2)
    entries = [msgspec.convert(kept, Quarantine)]
    quarantines.upsert(node("Healthy", "Failed", quarantine=entries, name=name, of="uid-2"))
    assert len(quarantines._removed) == 0


async def test_a_gpu_whose_gpunode_an_administrator_deleted_is_released(server, quarantines, build):
    entry = Quarantine(gpu="GPU-0", cause="XID 79", since=build.stamp(0))
    gone = node("Healthy", quarantine=[entry], of="uid-1")
    quarantines.replace([gone])
    quarantines.remove(gone)
    quarantines.upsert(node("Healthy", of="uid-1"))
    await quarantines.write_changes()
    assert server.writes == []


def test_the_number_of_remembered_gpus_is_limited(quarantines, build):
    entries = [
        Quarantine(gpu=f"GPU-{number}", cause="XID 79", since=build.stamp(0)) for number in range(2)
    ]
    for number in range(MAX_REMOVED):
        gone = tuple(structs.replace(each, gpu=f"{each.gpu}-{number}") for each in entries)
        quarantines.remove(node(quarantine=gone, name=f"n{number}"))
    assert len(quarantines._removed) == MAX_REMOVED
