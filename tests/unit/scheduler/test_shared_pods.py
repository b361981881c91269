# SPDX-License-Identifier: Apache-2.0
"""Workers of a gang that share a pod have places of their own, and the pod claims all of them."""

import hypothesis.strategies as st
import msgspec
import pytest
from extender_builders import World, job, owner, plan_request, pod, whole
from hypothesis import given, settings

from gpupack_crds import names
from gpupack_crds.devices import decode_devices
from gpupack_crds.placement import by_worker
from gpupack_crds.worker_pods import pods_of
from gpupack_kubeclient import objects
from gpupack_scheduler.errors import BindRefused, RequestMismatch
from gpupack_scheduler.ledger.claims import shares
from gpupack_scheduler.ledger.placed_job import PlacedJob

SHARES = {"shares_pods": True}


def worker_pod(first, gpus, *, name="", attempt=1):
    """A pod of several workers of the gang, whose first has this index."""
    made = pod(
        name or f"p{first}",
        asking=[{names.GPU: "1"}] * gpus,
        worker=("train", attempt, first),
    )
    owners = [owner(f"train-{attempt}-p{first}")]
    built = msgspec.to_builtins(made)
    built["metadata"]["ownerReferences"] = owners
    return msgspec.convert(built, objects.Pod)


def admitted(world, *placed, **spec):
    shown = job(
        "train", attempt=1, phase="Admitted", placed=placed, workers=len(placed), **SHARES | spec
    )
    world.ledger.jobs.upsert(shown)
    return shown


def four_and_two(world, **spec):
    """Workers 0, 1, 3 and 5 on node a, 2 and 4 on node b."""
    return admitted(
        world,
        *[("a", [0]), ("a", [1]), ("b", [3]), ("a", [2]), ("b", [0]), ("a", [3])],
        **spec,
    )


def test_a_pod_gets_the_gpus_of_its_workers_in_their_order(world):
    four_and_two(world)
    bound = world.bind(worker_pod(2, 2), "b")
    held = decode_devices(bound.metadata.annotations[names.DEVICES_ANNOTATION])
    assert [share.uuid for share in held] == ["GPU-b-3", "GPU-b-0"]
    assert world.free("b") == [1, 2]
    assert not world.ledger.claims.contradictions


@pytest.mark.parametrize("gpus", [1, 3, 5])
def test_a_pod_that_asks_for_more_or_less_than_its_workers_have_gets_no_node(world, gpus):
    four_and_two(world)
    answer = world.filter(worker_pod(0, gpus))
    text = f"asks for {gpus} gpupack.dev/gpu, but its worker's place is 4 gpupack.dev/gpu"
    assert text in answer.failed_and_unresolvable_nodes["a"]
    with pytest.raises(RequestMismatch):
        world.reserve(worker_pod(0, gpus), "a")


def test_a_worker_that_is_not_the_first_of_its_pod_has_no_pod(world):
    four_and_two(world)
    answer = world.filter(pod("x", worker=("train", 1, 3)))
    text = "worker 3 runs in the pod of worker 0"
    assert answer.failed_and_unresolvable_nodes["a"] == text
    with pytest.raises(BindRefused, match=text):
        world.reserve(pod("x", worker=("train", 1, 3)), "a")


def test_the_refusal_of_a_second_pod_names_the_workers_with_held_gpus(world):
    four_and_two(world)
    world.bind(worker_pod(0, 4), "a")
    answer = world.filter(worker_pod(0, 4, name="again"))
    text = "the place of workers 0-1,3,5 is held by pod p0"
    assert answer.failed_and_unresolvable_nodes["a"] == text


def test_a_pod_that_comes_before_its_plan_is_seen_written_is_asked_about_again(world):
    world.ledger.jobs.upsert(job("train", workers=2))
    world.plan(plan_request("train", attempt=1, workers=2, gpus=1))
    answer = world.filter(worker_pod(0, 2))
    assert "not known yet" in answer.error
    placed = [
        (claim.placement.node, shares(claim.placement))
        for claim in world.ledger.plan_of(world.attempt("train"))
    ]
    admitted(world, *placed)
    assert world.filter(worker_pod(0, 2)).node_names == [placed[0][0]]


def test_each_worker_of_an_elastic_gang_has_a_pod_to_itself(world):
    places = [("a", [number]) for number in range(3)]
    admitted(world, *places, minWorkers=2, shares_pods=False)
    world.bind(worker_pod(0, 1), "a")
    world.bind(worker_pod(1, 1), "a")
    world.bind(pod("x", worker=("train", 1, 2)), "a")
    assert world.free("a") == [3]


def test_pods_that_are_seen_before_their_job_contradict_nothing(world):
    claim_of = World()
    claim_of.add_node("a")
    claim_of.add_node("b")
    shown = four_and_two(claim_of)
    bound = [claim_of.bind(worker_pod(0, 4), "a"), claim_of.bind(worker_pod(2, 2), "b")]
    world.ledger.pods.replace(bound)
    world.ledger.jobs.replace([shown])
    assert not world.ledger.claims.contradictions
    assert (world.free("a"), world.free("b")) == ([], [1, 2])


def test_a_deleted_shared_pod_leaves_the_gpus_to_its_workers(world):
    four_and_two(world)
    bound = world.bind(worker_pod(0, 4), "a")
    world.ledger.pods.remove(bound)
    assert world.free("a") == []
    world.bind(worker_pod(0, 4, name="again"), "a")
    assert world.free("a") == []


def test_an_attempt_that_ends_holds_what_its_pods_hold_as_the_same_job(world):
    four_and_two(world)
    world.decide()
    bound = world.bind(worker_pod(0, 4), "a")
    world.decide()
    assert world.running() == ["train"]
    world.ledger.jobs.upsert(job("train", attempt=1, phase="Failed", workers=6, **SHARES))
    world.decide()
    assert world.running() == ["train"]
    assert (world.free("a"), world.free("b")) == ([], [0, 1, 2, 3])
    world.ledger.pods.remove(bound)
    world.decide()
    assert world.running() == []


def test_a_pod_that_says_to_be_another_worker_of_a_pod_counts_by_itself(world):
    four_and_two(world)
    world.bind(worker_pod(0, 4), "a")
    world.ledger.pods.upsert(
        pod("liar", on="b", devices=whole("b", 1), worker=("train", 1, 1)),
    )
    world.decide()
    assert sorted(world.running()) == ["pod liar", "train"]


def test_a_running_gang_of_shared_pods_may_be_moved(world):
    template = {"spec": {"containers": [{"name": "worker"}]}}
    four_and_two(world, movable=True, template=template)
    world.decide()
    (running,) = world.owner.queue.state.running
    assert running.job.movable
    assert len(running.placements) == running.job.gang.workers == 6


@pytest.mark.parametrize("odd", [False, None, 3, "yes", [], {"a": 1}])
def test_whatever_else_than_true_means_a_pod_for_each_worker(world, odd):
    shown = job("train", attempt=1, phase="Admitted", placed=[("a", [0]), ("a", [1])], workers=2)
    entry = {"number": 1, "sharesPods": odd}
    written = msgspec.to_builtins(shown)
    written["status"]["attempts"] = [entry]
    world.ledger.jobs.upsert(msgspec.json.decode(msgspec.json.encode(written), type=PlacedJob))
    assert all(claim.pod_index is None for claim in world.ledger.claims.workers.values())


def test_a_changed_spec_does_not_change_a_recorded_layout(world):
    places = [("a", [0]), ("a", [1])]
    shown = job("train", attempt=1, phase="Admitted", placed=places, workers=2, podPerWorker=False)
    world.ledger.jobs.upsert(shown)
    assert all(claim.pod_index is None for claim in world.ledger.claims.workers.values())


EVENTS = ["write", "list", "bind", "gone", "end", "again"]


@st.composite
def gangs(draw):
    """Nodes of a gang's workers, how many start together, and in which order things happen."""
    nodes = draw(st.lists(st.sampled_from("ab"), min_size=2, max_size=8))
    nodes = [each for n, each in enumerate(nodes) if nodes[:n].count(each) < 4]
    least = draw(st.integers(1, len(nodes)))
    events = st.tuples(st.sampled_from(EVENTS), st.integers(0, 7))
    return nodes, least, draw(st.lists(events, max_size=20))


@settings(max_examples=300, deadline=None)
@given(gangs())
def test_whatever_happens_no_gpu_is_held_twice_or_free_too_early(gang):
    nodes, least, events = gang
    world = World()
    world.add_node("a")
    world.add_node("b")
    placed = [(node, [nodes[:n].count(node)]) for n, node in enumerate(nodes)]
    spec = {"workers": len(nodes), "minWorkers": least, **SHARES}
    shown = job("train", attempt=1, phase="Admitted", placed=placed, **spec)
    ended = job("train", attempt=1, phase="Failed", **spec)
    layout = pods_of(shown.status, least=least)
    ledger, live = world.ledger, {}
    for number, placement in enumerate(by_worker(shown.status.placement)):
        claim = whole(placement.node, *placed[number][1])
        assert claim == placement.devices
    ledger.jobs.upsert(shown)
    is_written = True
    for serial, (event, number) in enumerate(events):
        target = layout[number % len(layout)]
        if event in {"write", "again"}:
            is_written = is_written or not live
            ledger.jobs.upsert(shown if is_written else ended)
        elif event == "list":
            ledger.jobs.replace([shown if is_written else ended])
        elif event == "end":
            is_written = False
            ledger.jobs.upsert(ended)
        elif event == "bind" and is_written and target.index not in live:
            asking = worker_pod(target.index, len(target.workers), name=f"p{serial}")
            assert world.filter(asking).node_names == [target.node]
            live[target.index] = world.bind(asking, target.node)
        elif event == "gone" and target.index in live:
            ledger.pods.remove(live.pop(target.index))
        check(world, layout if is_written else [], live)
    world.decide()
    check(world, layout if is_written else [], live)


def check(world, layout, live):
    """What is not free is what workers have places for, and what their pods hold: once each."""
    held = {share.uuid for each in layout for share in each.devices}
    for bound in live.values():
        annotation = bound.metadata.annotations[names.DEVICES_ANNOTATION]
        held |= {share.uuid for share in decode_devices(annotation)}
    free = {f"GPU-{node}-{number}" for node in "ab" for number in world.free(node)}
    assert not free & held
    assert len(free) + len(held) == 8
    assert not world.ledger.claims.contradictions
    grants = [
        grant.uuid
        for holder in held_by(world)
        for grant in world.ledger.cluster.placement_of(holder).devices
    ]
    assert sorted(grants) == sorted(held)


def held_by(world):
    cluster = world.ledger.cluster
    uuids = [(node, f"GPU-{node}-{number}") for node in "ab" for number in range(4)]
    return {holder for node, uuid in uuids for holder in cluster.holders_of(node=node, uuid=uuid)}
