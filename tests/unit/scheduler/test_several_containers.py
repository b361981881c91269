# SPDX-License-Identifier: Apache-2.0
"""A pod asks for what its containers ask for together."""

import msgspec
import pytest
from extender_builders import OBSERVED, OTHER, World, pod, share_limits

from gpupack_crds import names
from gpupack_kubeclient import objects
from gpupack_placement import MilliCpu, Request, Slices
from gpupack_scheduler.requests import pod_request

TWO, ONE = {names.GPU: "2"}, {names.GPU: "1"}
SMALL, HALF = {f"{names.MIG_PREFIX}1g.10gb": "1"}, {f"{names.MIG_PREFIX}3g.40gb": "1"}


def asked(*containers):
    return pod_request.of_watch(pod("p", asking=list(containers)), (OBSERVED, OTHER))


def with_init(asking, limits, *, restart=None):
    """The pod with an init container, or a sidecar, that asks for GPUs."""
    built = msgspec.to_builtins(asking)
    init = {"name": "init", "resources": {"limits": limits}, "restartPolicy": restart or ""}
    built["spec"]["initContainers"] = [init]
    return msgspec.convert(built, objects.Pod)


@pytest.mark.parametrize(
    ("containers", "request_"),
    [
        ([ONE, TWO], Request(gpus=3, cpu=MilliCpu(2000))),
        ([ONE, {}, ONE], Request(gpus=2, cpu=MilliCpu(3000))),
        (
            [{OBSERVED: "2"}, {OBSERVED: "1"}],
            Request(gpus=3, resource=OBSERVED, cpu=MilliCpu(2000)),
        ),
        (
            [SMALL, SMALL],
            Request(slices=Slices("1g.10gb", 2), cpu=MilliCpu(2000)),
        ),
    ],
)
def test_whole_gpus_and_slices_of_its_containers_add_up(containers, request_):
    request = asked(*containers).served()
    assert (request.gpus, request.slices) == (request_.gpus, request_.slices)
    assert (request.resource, request.cpu) == (request_.resource, request_.cpu)


@pytest.mark.parametrize(
    "containers",
    [
        [ONE, share_limits(40)],
        [share_limits(40), share_limits(40)],
        [SMALL, HALF],
        [SMALL, ONE],
        [ONE, {OBSERVED: "1"}],
        [{OBSERVED: "1"}, {OTHER: "1"}],
    ],
)
def test_other_containers_together_are_refused_with_what_is_possible(containers):
    ask = asked(*containers)
    assert ask.request is None
    assert "2 of its containers ask for GPUs; several may ask for whole GPUs" in ask.refusal


def test_two_replicas_of_shared_gpus_are_refused_as_they_may_be_of_one():
    replica = {f"{OBSERVED}.shared": "1"}
    ask = pod_request.of_watch(pod("p", asking=[replica, replica]), (*replica,))
    assert "only one may ask for a share or a replica" in ask.refusal


def test_the_sum_of_container_requests_is_limited_to_a_node():
    most = {names.GPU: "128"}
    assert "ask for 256 GPUs together; no node has more than 128" in asked(most, most).refusal


def test_a_sidecar_counts_and_a_plain_init_container_may_not_ask():
    sidecar = with_init(pod("p", asking=TWO), ONE, restart="Always")
    assert pod_request.of_watch(sidecar, ()).served().gpus == 3
    plain = pod_request.of_watch(with_init(pod("p", asking=TWO), ONE), ())
    assert "1 of its plain init containers" in plain.refusal


def test_a_pod_of_two_containers_is_bound_with_the_gpus_of_both_and_frees_them():
    world = World()
    world.add_node("a")
    asking = pod("p", asking=[ONE, TWO])
    assert world.filter(asking, nodes=["a"]).node_names == ["a"]
    bound = world.bind(asking, "a")
    assert bound.metadata.annotations[names.DEVICES_ANNOTATION].count("GPU-a-") == 3
    assert len(world.free("a")) == 1
    world.ledger.pods.remove(bound)
    assert len(world.free("a")) == 4
