# SPDX-License-Identifier: Apache-2.0
"""One Binding, and what became of it."""

import asyncio

import msgspec
import pytest
from extender_builders import job, owner, pod, whole

from gpupack_crds import names
from gpupack_crds.devices import decode_devices
from gpupack_extender import binding
from gpupack_extender.binding import Binder
from gpupack_extender.wire import BindingArgs
from gpupack_kubeclient import errors, objects
from gpupack_scheduler.errors import BindRefused


@pytest.fixture
def binder(world, server, api, monkeypatch):
    monkeypatch.setattr(binding, "PAUSE_SECONDS", 0.01)
    server.add(pod("p"))
    world.ledger.pods.upsert(pod("p"))
    world.filter(pod("p"), nodes=["a"])
    return Binder(api, world.ledger, world.reserve_ask, leads=lambda: world.leads)


def to(node, name="p"):
    return BindingArgs(pod_name=name, pod_namespace="team", pod_uid=f"uid-{name}", node=node)


async def test_node_and_devices_are_written_in_one_call(binder, server):
    await binder.bind(to("a"))
    (written,) = server.bindings
    assert (written["metadata"]["uid"], written["target"]["name"]) == ("uid-p", "a")
    annotation = server.pods["p"]["metadata"]["annotations"]["gpupack.dev/devices"]
    assert decode_devices(annotation) == whole("a", 0)


async def test_a_worker_gets_the_devices_of_its_plan(binder, world, server):
    world.ledger.jobs.upsert(job("train", attempt=1, phase="Admitted", placed=[("b", [1, 3])]))
    worker = pod("w", gpus=2, worker=("train", 1, 0))
    server.add(worker)
    await binder.bind(to("b", name="w"))
    annotation = server.pods["w"]["metadata"]["annotations"]["gpupack.dev/devices"]
    assert decode_devices(annotation) == whole("b", 1, 3)


@pytest.mark.parametrize("fault", ["lost after", "timeout after"])
async def test_a_lost_reply_to_a_write_that_landed_is_success(binder, world, server, fault):
    server.faults = [fault]
    await binder.bind(to("a"))
    assert len(server.bindings) == 1
    assert world.states() == ["landed"]


async def test_a_call_that_got_lost_is_sent_again(binder, world, server):
    server.faults = ["lost before"]
    await binder.bind(to("a"))
    assert len(server.bindings) == 2
    assert world.states() == ["landed"]


async def test_a_call_that_got_lost_is_not_sent_again_once_the_lease_is_lost(binder, world, server):
    server.faults = ["lost before"]
    server.bound = lambda: setattr(world, "leads", False)
    with pytest.raises(errors.Unreachable, match="not known whether the pod is bound"):
        await binder.bind(to("a"))
    assert len(server.bindings) == 1
    assert world.states() == ["unanswered"]


async def test_without_the_lease_no_binding_of_a_standalone_pod_is_sent(binder, world, server):
    world.leads = False
    with pytest.raises(BindRefused, match="the Lease was lost before the binding was sent"):
        await binder.bind(to("a"))
    assert (server.bindings, world.states()) == ([], [])


async def test_a_written_plan_is_bound_without_the_lease(binder, world, server):
    world.leads = False
    world.ledger.jobs.upsert(job("train", attempt=1, phase="Admitted", placed=[("b", [1])]))
    server.add(pod("w", worker=("train", 1, 0)))
    await binder.bind(to("b", name="w"))
    assert len(server.bindings) == 1


async def test_a_bind_without_an_answer_keeps_its_gpus(binder, world, server):
    server.faults = ["lost before"] * binding.TRIES
    with pytest.raises(errors.Unreachable, match="not known whether the pod is bound"):
        await binder.bind(to("a"))
    assert world.states() == ["unanswered"]
    assert world.filter(pod("p")).node_names == ["a"]


async def test_a_second_try_settles_the_unanswered_bind(binder, world, server):
    server.faults = ["lost before"] * binding.TRIES
    with pytest.raises(errors.Unreachable):
        await binder.bind(to("a"))
    await binder.bind(to("a"))
    assert world.states() == ["landed"]


async def test_a_refused_write_releases_the_gpus(binder, world, server):
    server.faults = ["forbidden"]
    with pytest.raises(BindRefused, match="403 Forbidden for a test"):
        await binder.bind(to("a"))
    assert world.states() == []


async def test_a_pod_that_another_scheduler_bound_releases_the_gpus(binder, world, server):
    server.add(pod("p", on="b"))
    with pytest.raises(BindRefused, match="409 Conflict"):
        await binder.bind(to("a"))
    assert world.states() == []


async def test_a_deleted_pod_releases_the_gpus(binder, world, server):
    server.pods.clear()
    with pytest.raises(BindRefused):
        await binder.bind(to("a"))
    assert world.states() == []


async def test_binding_twice_writes_once(binder, server):
    await asyncio.gather(binder.bind(to("a")), binder.bind(to("a")))
    await binder.bind(to("a"))
    assert len(server.bindings) == 1


async def test_concurrent_binds_of_the_same_gpus_succeed_for_one_pod(binder, world, server):
    for name in ("q", "r", "s", "t", "u"):
        server.add(pod(name))
    calls = [binder.bind(to("a", name=name)) for name in ("p", "q", "r", "s", "t", "u")]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(each) for each in results if each] == [BindRefused, BindRefused]
    assert world.free("a") == []


async def test_a_caller_that_gives_up_does_not_stop_the_bind(binder, world, server):
    caller = asyncio.create_task(binder.bind(to("a")))
    await asyncio.sleep(0)
    caller.cancel()
    await binder.bind(to("a"))
    assert len(server.bindings) == 1
    assert world.states() == ["landed"]


async def test_an_unknown_pod_is_refused(binder):
    with pytest.raises(BindRefused, match="there is no pod of UID uid-x"):
        await binder.bind(to("a", name="x"))


def gang(world, *placed, **spec):
    """A gang of as many workers as there are places."""
    size = {"workers": len(placed), "minWorkers": len(placed)} | spec
    shown = job("train", attempt=1, phase="Admitted", placed=placed, **size)
    world.ledger.jobs.upsert(shown)


def claiming(made, **annotations):
    """A pod of a user that forges what only a Binding may set."""
    tree = msgspec.to_builtins(made)
    tree["metadata"]["annotations"] = annotations
    return msgspec.convert(tree, objects.Pod)


def of_two_workers(name, first):
    made = msgspec.to_builtins(pod(name, asking=[{names.GPU: "1"}] * 2, worker=("train", 1, first)))
    made["metadata"]["ownerReferences"] = [owner(f"train-1-p{first}")]
    return msgspec.convert(made, objects.Pod)


async def written(binder, server, made, *, on):
    """The annotations that the Binding gives the pod."""
    server.add(made)
    await binder.bind(to(on, name=made.metadata.name))
    return server.bindings[-1]["metadata"]["annotations"]


@pytest.fixture
def at_once(binder, monkeypatch):
    """Let each pod of a gang be bound without waiting for the others."""

    async def wait(claim, is_wanted):
        del claim, is_wanted

    monkeypatch.setattr(binder.gathering, "wait", wait)
    return binder


async def test_the_binding_of_a_shared_pod_names_its_workers(at_once, world, server):
    gang(world, ("b", [0]), ("a", [1]), ("b", [1]), shares_pods=True)
    found = await written(at_once, server, of_two_workers("w", 0), on="b")
    assert found.keys() == {names.DEVICES_ANNOTATION, names.WORKERS_ANNOTATION}
    assert found[names.WORKERS_ANNOTATION] == "0,2"
    alone = claiming(pod("x", worker=("train", 1, 1)), **{names.WORKERS_ANNOTATION: "0-7"})
    assert (await written(at_once, server, alone, on="a")).keys() == {names.DEVICES_ANNOTATION}


async def test_pods_of_a_gang_on_one_node_are_named_as_one_gang(at_once, world, server):
    gang(world, ("b", [0]), ("b", [1]))
    for index in range(2):
        made = pod(f"w{index}", worker=("train", 1, index))
        found = await written(at_once, server, made, on="b")
        assert found[names.GANG_MEMORY_ANNOTATION] == "uid-train/1"
        assert names.WORKERS_ANNOTATION not in found


@pytest.mark.parametrize(
    ("placed", "spec"),
    [
        ([("a", [1]), ("b", [0])], {}),
        ([("b", [0, 1]), ("b", [2, 3])], {"gpus": 2}),
        ([("b", [0]), ("b", [1])], {"minWorkers": 1}),
    ],
    ids=["on two nodes", "several GPUs each", "elastic"],
)
async def test_pods_of_other_gangs_have_no_common_memory(at_once, world, server, placed, spec):
    gang(world, *placed, **spec)
    node, devices = placed[0]
    made = pod("w", gpus=len(devices), worker=("train", 1, 0))
    forged = claiming(made, **{names.GANG_MEMORY_ANNOTATION: "uid-train/1"})
    assert (await written(at_once, server, forged, on=node)).keys() == {names.DEVICES_ANNOTATION}


async def test_the_binding_of_a_standalone_pod_has_only_its_gpus(at_once, world, server):
    gang(world, ("b", [0]), ("b", [1]))
    claims = {names.GANG_MEMORY_ANNOTATION: "uid-train/1", names.WORKERS_ANNOTATION: "0-1"}
    stranger = claiming(pod("p"), **claims)
    assert (await written(at_once, server, stranger, on="a")).keys() == {names.DEVICES_ANNOTATION}
