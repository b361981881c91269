# SPDX-License-Identifier: Apache-2.0
"""Shares of a GPU: several pods on one, each with its percent and memory."""

import msgspec
import pytest
from extender_builders import (
    MEMORY_MIB,
    gpu_node,
    job,
    node,
    part,
    places,
    plan_request,
    pod,
    share_limits,
    uuid,
    whole,
)

from gpupack_crds import names
from gpupack_crds.devices import decode_devices
from gpupack_crds.names import DEVICES_ANNOTATION, SHARE_SLOTS_PER_GPU
from gpupack_scheduler.errors import BindRefused

SHARE = {"percent": 30, "memory": "8Gi"}


def sharing(name, percent=30, memory="8Gi", **changes):
    return pod(name, asking=share_limits(percent, memory), **changes)


def devices(bound):
    return decode_devices(bound.metadata.annotations[DEVICES_ANNOTATION])


def placed(world, asking, **nodes):
    (where,) = world.filter(asking, **nodes).node_names
    return devices(world.bind(asking, where))


def test_the_binding_of_a_share_says_its_percent_and_memory(world):
    assert placed(world, sharing("p")) == part("a", 0, percent=30, memory_mib=8192)


def test_shares_of_several_namespaces_fill_one_gpu_before_the_next(world):
    for number in range(4):
        placed(world, sharing(f"p{number}", namespace=f"team-{number}"))
    assert world.left("a") == [10, 70, 100, 100]


def test_a_share_of_a_job_goes_to_a_gpu_that_a_standalone_pod_shares(world):
    placed(world, sharing("p"))
    (worker,) = places(world.plan(plan_request("train", share=SHARE)))
    assert (worker.node, worker.devices) == ("a", part("a", 0, percent=30))


def test_workers_of_one_job_share_gpus(world):
    plan = world.plan(plan_request("train", workers=7, share=SHARE))
    assert [each.devices[0].uuid for each in places(plan)].count(uuid("a", 0)) == 3
    assert world.left("a") == [10, 10, 70, 100]


def test_a_written_share_is_held_after_a_restart(world):
    held = [("a", part("a", 0, percent=30)), ("a", part("a", 0, percent=30))]
    world.ledger.jobs.upsert(job("train", attempt=1, phase="Admitted", placed=held))
    assert world.left("a") == [40, 100, 100, 100]


def test_the_share_of_a_worker_and_of_its_pod_count_once(world):
    held = [("a", part("a", 0, percent=30))]
    world.ledger.jobs.upsert(job("train", attempt=1, phase="Admitted", placed=held))
    world.bind(sharing("p", worker=("train", 1, 0)), "a")
    assert world.left("a") == [70, 100, 100, 100]


def test_memory_alone_can_fill_a_gpu(world):
    placed(world, sharing("p", 10, f"{MEMORY_MIB - 100}Mi"))
    assert placed(world, sharing("q", 10, "101Mi"))[0].uuid == uuid("a", 1)
    assert placed(world, sharing("r", 10, "100Mi"))[0].uuid == uuid("a", 0)


def test_a_shared_gpu_is_never_given_whole(world):
    for number in range(3):
        world.ledger.pods.upsert(pod(f"p{number}", on="a", devices=whole("a", number)))
    placed(world, sharing("s", 1, "1Mi"), nodes=["a"])
    assert world.filter(pod("q"), nodes=["a"]).failed_nodes == {"a": "fewer than 1 free GPU"}


def test_a_whole_gpu_is_never_shared(world):
    world.ledger.pods.upsert(pod("p", gpus=4, on="a", devices=whole("a", 0, 1, 2, 3)))
    result = world.filter(sharing("s", 1, "1Mi"), nodes=["a"])
    assert result.failed_nodes == {"a": "no GPU has 1% and 1 MiB free"}


def test_a_gpu_takes_no_more_shares_than_the_kubelet_has_slots_for(world):
    world.add_node("c", gpus=1)
    for number in range(SHARE_SLOTS_PER_GPU):
        placed(world, sharing(f"p{number}", 1, "1Mi"), nodes=["c"])
    result = world.filter(sharing("q", 1, "1Mi"), nodes=["c"])
    assert result.failed_nodes == {
        "c": "GPUs with 1% and 1 MiB free have their maximum number of shares"
    }


def test_a_share_larger_than_any_gpu_fails_for_good(world):
    result = world.filter(sharing("p", 10, "100Gi"), nodes=["a"])
    text = "GPU memory is below 100 GiB; would fit with 20841 MiB less GPU memory"
    assert result.failed_and_unresolvable_nodes == {"a": text}
    refusal = world.plan(plan_request("train", share={"percent": 10, "memory": "8000000Ti"}))
    assert (refusal.counts, refusal.never) == ({"GpuMemoryTooSmall": 2}, True)


def test_a_share_that_is_given_back_can_be_taken_again(world):
    bound = world.bind(sharing("p", 60), "a")
    world.bind(sharing("q", 60), "a")
    world.ledger.pods.remove(bound)
    assert world.left("a") == [100, 40, 100, 100]


def test_a_share_of_a_gpu_that_others_claim_is_not_bound(world):
    held = [("a", part("a", 0, percent=30))]
    world.ledger.jobs.upsert(job("train", attempt=1, phase="Admitted", placed=held))
    world.ledger.pods.upsert(sharing("q", 80, on="a", devices=part("a", 0, percent=80)))
    with pytest.raises(BindRefused, match="GPU-a-0 on node a is claimed by others too"):
        world.reserve(sharing("p", worker=("train", 1, 0)), "a")


def test_a_share_of_a_gpu_that_failed_is_not_bound(world):
    world.filter(sharing("p"), nodes=["a"])
    world.ledger.gpus.upsert(gpu_node("a", failed=[0]))
    with pytest.raises(BindRefused, match="GPU GPU-a-0 on node a failed"):
        world.reserve(sharing("p"), "a")


@pytest.mark.parametrize("missing", [{"tickets": 0}, {"slots": 0}])
def test_a_node_whose_kubelet_lacks_a_device_token_gets_no_work(world, missing):
    world.ledger.nodes.upsert(node("a", **missing))
    for asking in (pod("p"), sharing("q")):
        result = world.filter(asking, nodes=["a"])
        assert result.failed_and_unresolvable_nodes == {"a": "node is not ready"}


def annotated(name, *, isolation=None, share_with=None, **changes):
    said = {names.ISOLATION_ANNOTATION: isolation, names.SHARE_WITH_ANNOTATION: share_with}
    annotations = {key: value for key, value in said.items() if value is not None}
    return sharing(name, annotations=annotations, **changes)


def limiting(world, name, limits="MPS"):
    shown = gpu_node(name)
    devices = tuple(msgspec.structs.replace(d, limits=limits) for d in shown.status.devices)
    status = msgspec.structs.replace(shown.status, devices=devices)
    world.ledger.gpus.upsert(msgspec.structs.replace(shown, status=status))


def test_a_limited_share_is_said_to_be_one_in_its_binding(world):
    limiting(world, "b")
    (share,) = placed(world, annotated("p", isolation="limited"))
    assert (share.uuid, share.isolation, share.exclusive_to_namespace) == (
        uuid("b", 0),
        "limited",
        "",
    )


def test_a_limited_share_goes_nowhere_where_nothing_limits_it(world):
    result = world.filter(annotated("p", isolation="limited"))
    text = "no GPU enforces the limits of shares"
    assert set(result.failed_and_unresolvable_nodes.values()) == {text}


def test_limited_and_cooperative_shares_are_not_on_one_gpu(world):
    limiting(world, "a")
    found = [
        placed(world, annotated(f"p{number}", isolation=isolation), nodes=["a"])[0].uuid
        for number, isolation in enumerate(["limited", "cooperative", "limited", None])
    ]
    assert found == [uuid("a", number) for number in (0, 1, 0, 1)]


def test_a_namespace_that_shares_with_no_other_is_alone_on_its_gpus(world):
    first = placed(world, annotated("p", share_with="namespace", namespace="team-a"))
    assert first[0].exclusive_to_namespace == "team-a"
    for name, changes in {
        "q": {"share_with": "namespace", "namespace": "team-b"},
        "r": {"namespace": "team-a"},
    }.items():
        assert placed(world, annotated(name, **changes))[0].uuid != first[0].uuid
    again = annotated("s", share_with="namespace", namespace="team-a")
    assert placed(world, again)[0].uuid == first[0].uuid


def test_sharing_groups_are_known_after_a_restart(world):
    spec = {"percent": 30, "memory": "8Gi", "shareWith": "namespace"}
    (worker,) = places(world.plan(plan_request("train", share=spec, namespace="team-a")))
    assert (worker.devices[0].uuid, worker.devices[0].exclusive_to_namespace) == (
        uuid("a", 0),
        "team-a",
    )
    written = job("train", attempt=1, phase="Admitted", placed=[("a", worker.devices)])
    world.use(world.new_ledger())
    for name in ("a", "b"):
        world.add_node(name)
    world.ledger.jobs.upsert(written)
    assert placed(world, sharing("q"))[0].uuid == uuid("a", 1)


def test_a_worker_has_the_share_that_was_planned_for_it(world):
    spec = {"percent": 30, "memory": "8Gi", "shareWith": "namespace"}
    world.plan(plan_request("train", share=spec))
    with pytest.raises(BindRefused, match="next to those of namespace team alone"):
        world.reserve(sharing("p", worker=("train", 1, 0)), "a")


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"isolation": "strict"}, "nothing isolates shares of a GPU strictly"),
        ({"isolation": "total"}, "is 'total'; set it to cooperative or limited or strict"),
        ({"share_with": "friends"}, "is 'friends'; set it to anyone or namespace"),
    ],
)
def test_an_invalid_share_is_refused(world, said, text):
    result = world.filter(annotated("p", **said))
    assert text in str(result)
