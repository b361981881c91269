# SPDX-License-Identifier: Apache-2.0
"""Force-deleted pods whose processes still run: their GPUs get no new work."""

import msgspec
import pytest
from extender_builders import OBSERVED, World, gpu_node, job, node, part, pod, share_limits, whole

from gpupack_extender.filtering import HOLD_ENDS_SOON
from gpupack_kubeclient import objects
from gpupack_scheduler.decisions import Mode
from gpupack_scheduler.errors import BindRefused

HOLDING = gpu_node("a", lingering={"p": whole("a", 0, 1)})
EMPTY = gpu_node("a")


@pytest.fixture
def running(world):
    """A pod on GPUs 0 and 1 of node a."""
    bound = pod("p", gpus=2, on="a", devices=whole("a", 0, 1))
    world.ledger.pods.upsert(bound)
    return bound


def test_gpus_of_a_pod_that_is_gone_stay_held_until_its_processes_are(world, running):
    world.ledger.gpus.upsert(HOLDING)
    world.ledger.pods.remove(running)
    assert world.free("a") == [2, 3]
    world.ledger.gpus.upsert(EMPTY)
    assert world.free("a") == [0, 1, 2, 3]


def test_a_pod_that_is_gone_before_its_node_says_so_holds_again(world, running):
    world.ledger.pods.remove(running)
    assert world.free("a") == [0, 1, 2, 3]
    world.ledger.gpus.upsert(HOLDING)
    assert world.free("a") == [2, 3]


def test_a_pods_own_claim_and_its_lingering_are_one(world, running):
    world.ledger.gpus.upsert(HOLDING)
    assert world.ledger.claims.contradictions == 0
    assert world.free("a") == [2, 3]
    world.ledger.gpus.upsert(EMPTY)
    assert world.free("a") == [2, 3]


def given_up(running):
    """Build the pod as a removed node leaves it: finished, its containers still shown running."""
    container = objects.ContainerStatus(
        state=objects.ContainerState(running=objects.ContainerRunning())
    )
    status = msgspec.structs.replace(
        running.status, phase="Failed", container_statuses=(container,)
    )
    return msgspec.structs.replace(running, status=status)


def free_after(world, seconds):
    world.now += seconds
    world.ledger.expire()
    return world.free("a")


def test_gpus_of_a_finished_pod_whose_containers_may_run_wait_for_the_agents_word(world, running):
    world.ledger.pods.upsert(given_up(running))
    assert free_after(world, 14) == [2, 3]
    world.ledger.gpus.upsert(HOLDING)
    assert free_after(world, 1000) == [2, 3]
    world.ledger.gpus.upsert(EMPTY)
    assert world.free("a") == [0, 1, 2, 3]


@pytest.mark.parametrize("mode", list(Mode))
def test_a_pod_that_only_such_a_hold_refuses_comes_again_soon(mode):
    world = World(mode=mode)
    world.add_node("a")
    running = pod("p", gpus=2, on="a", devices=whole("a", 0, 1))
    world.ledger.pods.upsert(running)
    world.ledger.pods.upsert(given_up(running))
    assert world.filter(pod("q", gpus=4), nodes=["a"]).error == HOLD_ENDS_SOON
    assert world.filter(pod("r", gpus=8), nodes=["a"]).failed_and_unresolvable_nodes
    assert world.free("a") == [2, 3]
    world.now += 15
    assert world.filter(pod("q", gpus=4), nodes=["a"]).node_names == ["a"]


def test_a_pod_that_a_lingering_one_refuses_is_refused(world, running):
    world.ledger.gpus.upsert(HOLDING)
    world.ledger.pods.upsert(given_up(running))
    refused = world.filter(pod("q", gpus=4), nodes=["a"])
    assert not refused.error
    assert "a" in refused.failed_nodes


@pytest.mark.parametrize("again", ["upsert", "remove", "replace"])
def test_gpus_are_free_when_the_agent_lists_no_holders_even_if_a_watch_repeats_old_state(
    world, running, again
):
    world.ledger.pods.upsert(given_up(running))
    world.now += 10
    items = {"upsert": given_up(running), "remove": running, "replace": [given_up(running)]}
    getattr(world.ledger.pods, again)(items[again])
    assert world.free("a") == [2, 3]
    assert free_after(world, 5) == [0, 1, 2, 3]
    world.ledger.pods.replace([given_up(running)])
    assert world.free("a") == [0, 1, 2, 3]


def test_gpus_of_a_pod_that_its_kubelet_ended_are_free_at_once(world, running):
    world.ledger.pods.upsert(given_up(running))
    status = msgspec.structs.replace(given_up(running).status, container_statuses=())
    world.ledger.pods.upsert(msgspec.structs.replace(running, status=status))
    assert world.free("a") == [0, 1, 2, 3]


@pytest.mark.parametrize("first", ["gpus", "pods"])
def test_a_restart_finds_what_lingers_in_whatever_order_it_lists(world, first):
    lists = {"gpus": [HOLDING], "pods": [pod("q", on="a", devices=whole("a", 2))]}
    for kind in sorted(lists, key=lambda kind: kind != first):
        getattr(world.ledger, kind).replace(lists[kind])
    assert world.free("a") == [3]


def test_a_restart_that_still_lists_the_pod_counts_it_once(world, running):
    world.ledger.pods.replace([])
    world.ledger.gpus.upsert(HOLDING)
    world.ledger.pods.replace([running])
    obstacle = world.ledger.claims.obstacle(world.ledger.claims.pods["uid-p"].allocation)
    assert (obstacle, world.free("a")) == ("", [2, 3])


def test_all_gpus_of_running_processes_are_held_even_beyond_the_claim(world):
    world.ledger.pods.upsert(pod("p", on="a", devices=whole("a", 0)))
    world.ledger.gpus.upsert(HOLDING)
    assert world.free("a") == [2, 3]


def test_a_share_that_lingers_leaves_the_rest_of_its_gpu(world):
    lingering = {"p": part("a", 0, percent=40), "q": part("a", 0, percent=50)}
    world.ledger.gpus.upsert(gpu_node("a", lingering=lingering))
    assert world.left("a") == [10, 100, 100, 100]
    world.ledger.gpus.upsert(gpu_node("a", lingering={"q": part("a", 0, percent=50)}))
    asking = pod("r", asking=share_limits(45))
    world.bind(asking, world.filter(asking, nodes=["a"]).node_names[0])
    assert world.left("a") == [5, 100, 100, 100]


def test_a_worker_whose_gpu_still_runs_another_waits(world):
    world.ledger.jobs.upsert(job("train", attempt=2, phase="Admitted", placed=[("a", [0])]))
    world.ledger.gpus.upsert(HOLDING)
    text = "GPU GPU-a-0 on node a is claimed by others too"
    with pytest.raises(BindRefused, match=text):
        world.reserve(pod("q", worker=("train", 2, 0)), "a")
    world.ledger.gpus.upsert(EMPTY)
    world.bind(pod("q", worker=("train", 2, 0)), "a")
    assert world.free("a") == [1, 2, 3]


@pytest.mark.parametrize("observed", [False, True], ids=["whose binding is not ours", "observed"])
def test_gpus_withheld_for_device_tokens_of_a_finished_pod_are_freed(observed):
    """Its holding names no device, only a number of the kubelet's device tokens."""
    world = World()
    add, asking = (world.add_observed_node, {OBSERVED: "4"}) if observed else (world.add_node, None)
    add("a")
    taken = pod("p", gpus=4, on="a", asking=asking)
    world.ledger.pods.upsert(taken)
    assert world.free("a") == []
    world.ledger.pods.upsert(given_up(taken))
    wants = pod("q", gpus=4, asking=asking)
    assert world.filter(wants, nodes=["a"]).error == HOLD_ENDS_SOON
    world.now += 15
    assert world.filter(wants, nodes=["a"]).node_names == ["a"]


def test_a_standalone_pod_is_placed_again_when_its_gpus_turn_out_to_be_held(world):
    assert world.filter(pod("q", gpus=3)).node_names == ["a"]
    world.ledger.gpus.upsert(HOLDING)
    assert world.filter(pod("q", gpus=3)).node_names == ["b"]


def test_work_bound_before_the_report_is_no_contradiction(world, caplog):
    world.bind(pod("q"), "a")
    world.ledger.gpus.upsert(HOLDING)
    world.ledger.pods.replace([pod("q", on="a", devices=whole("a", 0), cpu="2")])
    assert world.ledger.claims.contradictions == 0
    assert "claimed beyond" not in caplog.text


def test_gpus_of_running_processes_are_held_while_their_node_is_away(world):
    world.ledger.gpus.upsert(HOLDING)
    world.ledger.nodes.remove(node("a"))
    world.ledger.nodes.upsert(node("a"))
    assert world.free("a") == [2, 3]


def test_a_gpunode_that_is_deleted_ends_what_it_reported(world):
    world.ledger.gpus.upsert(HOLDING)
    world.ledger.gpus.remove(HOLDING)
    world.ledger.gpus.upsert(EMPTY)
    assert world.free("a") == [0, 1, 2, 3]


def test_the_same_uid_on_two_nodes_is_held_on_both(world):
    world.ledger.gpus.upsert(gpu_node("a", lingering={"p": whole("a", 0)}))
    world.ledger.gpus.upsert(gpu_node("b", lingering={"p": whole("b", 3)}))
    assert (world.free("a"), world.free("b")) == ([1, 2, 3], [0, 1, 2])


def test_a_device_that_is_reported_twice_is_held_once(world):
    world.ledger.gpus.upsert(gpu_node("a", lingering={"p": whole("a", 0, 0)}))
    assert world.free("a") == [1, 2, 3]
