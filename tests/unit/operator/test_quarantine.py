# SPDX-License-Identifier: Apache-2.0
"""Which GPUs are kept out of new work, and for how long."""

import msgspec
import pytest
from msgspec import structs

from gpupack_crds.gpunode import MAX_RELAPSES, Quarantine
from gpupack_crds.kinds import GpuNode
from gpupack_crds.mig import MigGpu
from gpupack_operator.decision.quarantine import Rules, decided, needs_look
from gpupack_operator.metrics import Metrics
from gpupack_operator.quarantines import AGAIN_SECONDS, Quarantines, news
from gpupack_operator.removed_gpus import MAX_REMOVED

PROBATION = 600.0
PATH = "/apis/gpupack.dev/v1beta1/gpunodes/a"


def node(*health, quarantine=(), mode="owned", name="a", of="", **device):
    """GPUs 0 to so many, and what is written of them; `of`: UID of the Node that owns it."""
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
    """What is to be written of a node some seconds after the start, and in how many to look."""

    def at(seconds, *health, before=(), **fields):
        seen = node(*health, quarantine=before, **fields)
        entries, again = decided(seen, build.at(seconds), Rules(PROBATION))
        return entries, again and (again - build.at(seconds)).total_seconds()

    return at


def phases(entries):
    return [(each.gpu, each.phase, each.relapses) for each in entries]


@pytest.mark.parametrize("health", ["Cordoned", "Failed"])
def test_a_gpu_that_falls_ill_is_quarantined_with_its_cause(look, build, health):
    (entry,), again = look(0, "Healthy", health)
    assert (entry.gpu, entry.phase, entry.cause) == ("GPU-1", "Quarantined", "XID 79")
    assert (entry.since[:19], again) == (build.stamp(0)[:19], None)


def test_one_that_is_but_degraded_is_not(look):
    assert look(0, "Degraded") == ((), None)


def test_it_stays_so_for_as_long_as_its_agent_says_that_it_is_ill(look):
    first, _ = look(0, "Failed")
    assert look(99_999, "Failed", before=first) == (first, None)
    assert look(99_999, "Cordoned", before=first) == (first, None)


def test_once_better_it_is_on_probation_and_then_used_as_others_are(look):
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


def test_relapses_are_counted_up_to_a_bound_and_no_probation_lasts_for_ever(look):
    entries, _ = look(0, "Failed")
    for _ in range(2 * MAX_RELAPSES):
        entries, again = look(0, "Healthy", before=entries)
        entries, _ = look(0, "Failed", before=entries)
    assert entries[0].relapses == MAX_RELAPSES
    assert again == PROBATION * 2**8


def test_before_an_agent_has_looked_nothing_is_known_to_be_gone(look):
    first, _ = look(0, "Failed")
    kept, _ = look(1, before=first)
    assert [each.gpu for each in kept] == ["GPU-0"]


def test_a_gpu_that_its_agent_does_not_list_any_more_is_forgotten(look):
    first, _ = look(0, "Healthy", "Failed")
    assert look(1, "Healthy", before=first) == ((), None)


def test_a_driver_that_hangs_puts_no_gpu_in_quarantine(look):
    assert look(0, "Cordoned", causes=["NotInspected"]) == ((), None)


def test_of_mig_slices_it_is_the_gpu_that_they_are_part_of(look):
    entries, _ = look(0, "Failed", "Failed", migParent="GPU-9")
    assert [each.gpu for each in entries] == ["GPU-9"]


def test_a_gpu_that_is_cut_into_no_slices_for_now_as_after_a_boot_stays_where_it_is(build):
    entry = Quarantine(gpu="GPU-9", cause="XID 79", since=build.stamp(0))
    seen = node("Healthy", quarantine=[entry])
    cut = msgspec.structs.replace(seen.status, mig_gpus=(MigGpu(gpu="GPU-9"),))
    uncut = msgspec.structs.replace(seen, status=cut)
    assert decided(uncut, build.at(9), Rules(PROBATION)) == ((entry,), None)


def test_of_an_observed_node_another_plugin_judges_the_gpus(look):
    assert look(0, "Failed", mode="observed") == ((), None)


def test_only_what_needs_a_decision_is_kept():
    rules = Rules(PROBATION)
    assert not needs_look(node("Healthy", "Degraded"), rules)
    assert needs_look(node("Healthy", "Failed"), rules)
    assert needs_look(node("Healthy", quarantine=[Quarantine(gpu="GPU-0")]), rules)


def test_administrators_are_told_of_each_step(look):
    first, _ = look(0, "Failed")
    second, _ = look(100, "Healthy", before=first)
    said = [*news((), first), *news(first, second), *news(second, ())]
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


async def test_what_changes_is_written_once_and_said(server, quarantines):
    server.put(PATH, {"metadata": {"name": "a", "resourceVersion": "3"}, "spec": {}})
    quarantines.upsert(node("Failed"))
    await quarantines.look()
    (entry,) = written(server)
    assert (entry["gpu"], entry["cause"]) == ("GPU-0", "XID 79")
    assert next(path for verb, path in server.writes if verb == "POST").endswith("default/events")
    quarantines.clock["now"] = 100
    quarantines.upsert(node("Failed", quarantine=msgspec.convert([entry], list[Quarantine])))
    await quarantines.look()
    assert server.names("PATCH") == [PATH]


async def test_the_end_of_a_probation_needs_no_event(server, quarantines, build):
    server.put(PATH, {"metadata": {"name": "a", "resourceVersion": "3"}, "spec": {}})
    entry = Quarantine(gpu="GPU-0", phase="Probation", since=build.stamp(0))
    quarantines.upsert(node("Healthy", quarantine=[entry]))
    for moment in (0, PROBATION - 1):
        quarantines.clock["now"] = moment
        await quarantines.look()
        assert server.names("PATCH") == []
    quarantines.clock["now"] = PROBATION
    await quarantines.look()
    assert written(server) is None


async def test_what_could_not_be_written_is_tried_again(server, quarantines):
    server.put(PATH, {"metadata": {"name": "a", "resourceVersion": "3"}, "spec": {}})
    quarantines.upsert(node("Failed"))
    server.down = True
    await quarantines.look()
    server.down = False
    quarantines.clock["now"] = AGAIN_SECONDS
    await quarantines.look()
    assert len(written(server)) == 1


async def test_a_node_that_is_gone_is_looked_at_no_more(server, quarantines):
    quarantines.upsert(node("Failed"))
    quarantines.remove(node("Failed"))
    await quarantines.look()
    assert server.writes == []


@pytest.mark.parametrize("name", ["a", "b"])
async def test_a_gpu_whose_node_was_removed_is_in_quarantine_wherever_it_comes_back(
    server, quarantines, build, name
):
    path = PATH.removesuffix("a") + name
    server.put(path, {"metadata": {"name": name, "resourceVersion": "3"}, "spec": {}})
    entry = Quarantine(gpu="GPU-1", cause="XID 79", since=build.stamp(0), relapses=2)
    gone = node("Healthy", "Failed", quarantine=[entry], of="uid-1")
    quarantines.replace([gone])
    quarantines.remove(gone)
    for told in (node(name=name, of="uid-2"), node("Healthy", "Failed", name=name, of="uid-2")):
        quarantines.upsert(told)
        await quarantines.look()
    (kept,) = server.objects[path]["spec"]["quarantine"]
    assert (kept["gpu"], kept["relapses"]) == ("GPU-1", 2)
    entries = [msgspec.convert(kept, Quarantine)]
    quarantines.upsert(node("Healthy", "Failed", quarantine=entries, name=name, of="uid-2"))
    assert len(quarantines._removed) == 0


async def test_one_whose_gpunode_an_administrator_deleted_is_not(server, quarantines, build):
    entry = Quarantine(gpu="GPU-0", cause="XID 79", since=build.stamp(0))
    gone = node("Healthy", quarantine=[entry], of="uid-1")
    quarantines.replace([gone])
    quarantines.remove(gone)
    quarantines.upsert(node("Healthy", of="uid-1"))
    await quarantines.look()
    assert server.writes == []


def test_gpus_that_never_come_back_do_not_pile_up(quarantines, build):
    entries = [
        Quarantine(gpu=f"GPU-{number}", cause="XID 79", since=build.stamp(0)) for number in range(2)
    ]
    for number in range(MAX_REMOVED):
        gone = tuple(structs.replace(each, gpu=f"{each.gpu}-{number}") for each in entries)
        quarantines.remove(node(quarantine=gone, name=f"n{number}"))
    assert len(quarantines._removed) == MAX_REMOVED
