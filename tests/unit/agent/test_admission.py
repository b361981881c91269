# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_agent.admission import Wait, admit
from gpupack_agent.cgroups import CgroupState
from gpupack_agent.errors import StartRefused
from gpupack_agent.holders import Record
from gpupack_agent.pods import DeviceRequest, Start
from gpupack_crds import names

ONE = frozenset({"gpu-5"})
SLOT = frozenset({"share-0-3"})


def refusal(pod, node, resource=names.GPU, tokens=ONE, container="worker"):
    with pytest.raises(StartRefused) as caught:
        admit(Start(pod, container, resource, tokens), node)
    return str(caught.value)


def test_a_pod_gets_the_devices_of_its_annotation_whatever_its_device_tokens_are(build):
    pod = build.pod("a", build.share(2))
    decision = admit(build.start(pod), build.node(pods=[pod]))
    assert isinstance(decision, Record)
    assert (decision.uid, decision.devices, decision.tokens) == ("uid-a", (build.share(2),), ONE)


def test_a_share_is_given_for_a_share_token(build):
    asks = (DeviceRequest(container="worker", resource=names.GPU_SHARE, count=1),)
    pod = build.pod("a", build.share(0, 30, 100), requests=asks)
    assert isinstance(admit(build.start(pod, names.GPU_SHARE, SLOT), build.node()), Record)


def test_a_pod_waits_for_the_predecessor_on_its_device(build):
    node = build.node(records=[build.record("old")])
    decision = admit(build.start(build.pod("a", build.share())), node)
    assert decision == Wait(
        "device GPU-0 is held by another pod", ("team/a", "team/old"), is_held=True
    )


def test_a_pod_waits_while_a_live_pod_has_the_same_device_tokens(build):
    node = build.node(records=[build.record("old", build.share(1), tokens=ONE)])
    decision = admit(build.start(build.pod("a", build.share(0))), node)
    assert isinstance(decision, Wait)
    assert "another pod or container, which has not ended" in decision.reason
    assert "team/old" in decision.pods


def test_a_pod_without_a_cgroup_is_not_the_one_that_starts(build):
    node = build.node(cgroups={"uid-a": CgroupState.ABSENT})
    assert isinstance(admit(build.start(build.pod("a", build.share())), node), Wait)


def test_a_pod_that_was_not_bound_by_us_is_refused(build):
    reason = refusal(build.pod("a"), build.node())
    assert "schedulerName: gpupack and no nodeName" in reason
    assert "If the pod has that, another component bound it" in reason


def test_a_garbled_annotation_is_refused(build):
    pod = build.pod("a", build.share(), annotation="[{]")
    assert "[{]" in refusal(pod, build.node())


def test_an_annotation_with_more_devices_than_device_tokens_is_refused(build):
    pod = build.pod("a", build.share(0), build.share(1))
    assert "1 device tokens" in refusal(pod, build.node())


def test_a_share_is_not_given_for_the_token_of_a_whole_gpu(build):
    assert "must be the same" in refusal(build.pod("a", build.share(percent=50)), build.node())


def test_a_whole_gpu_is_not_given_for_a_share_token(build):
    pod = build.pod("a", build.share())
    assert "must be the same" in refusal(pod, build.node(), names.GPU_SHARE, SLOT)


def test_each_container_gets_its_part_of_the_annotation_in_the_order_of_the_spec(build):
    shares = [build.share(number) for number in (3, 1, 0)]
    pod = build.pod("a", *shares, requests=build.requests(x=1, y=2))
    two = frozenset({"gpu-6", "gpu-7"})
    x = admit(build.start(pod, container="x"), build.node())
    y = admit(build.start(pod, tokens=two, container="y"), build.node())
    assert (x.container, x.devices) == ("x", (build.share(3),))
    assert (y.container, y.devices) == ("y", (build.share(1), build.share(0)))


def test_containers_get_slices_of_one_profile(build):
    slices = [build.device(n, mig_parent="GPU-9", mig_profile="1g.18gb") for n in (0, 1)]
    resource = names.mig_resource("1g.18gb")
    pod = build.pod(
        "a", build.share(0), build.share(1), requests=build.requests(resource, x=1, y=1)
    )
    decision = admit(build.start(pod, resource, container="y"), build.node(devices=slices))
    assert decision.devices == (build.share(1),)


def test_an_annotation_of_more_devices_than_the_containers_request_is_refused(build):
    shares = [build.share(number) for number in (0, 1, 2)]
    reason = refusal(
        build.pod("a", *shares, requests=build.requests(x=1, y=1)), build.node(), container="x"
    )
    assert "request 2 gpupack.dev/gpu (x: 1, y: 1)" in reason


def test_another_number_of_device_tokens_than_requested_is_refused(build):
    pod = build.pod(
        "a", build.share(0), build.share(1), build.share(2), requests=build.requests(x=1, y=2)
    )
    assert "container y has 1 device tokens" in refusal(pod, build.node(), container="y")


def test_only_one_container_can_have_a_share(build):
    asks = build.requests(names.GPU_SHARE, x=1, y=1)
    pod = build.pod("a", build.share(0, 30, 10), build.share(1, 30, 10), requests=asks)
    reason = refusal(pod, build.node(), names.GPU_SHARE, SLOT, "x")
    assert "2 containers request gpupack.dev/gpu-share (x, y)" in reason


def test_containers_with_devices_of_two_kinds_are_refused(build):
    mixed = build.requests(x=1) + build.requests(names.mig_resource("1g.18gb"), y=1)
    pod = build.pod("a", build.share(0), build.share(1), requests=mixed)
    reason = refusal(pod, build.node(), container="x")
    assert "(x, y) request gpupack.dev/gpu and gpupack.dev/mig-1g.18gb" in reason


def test_a_container_gets_no_device_next_to_a_plain_init_container_that_requests_some(build):
    """The kubelet gives the container the init container's device tokens again."""
    pod = build.pod("a", build.share(0), plain_init_containers=("setup",))
    assert "init container setup cannot have devices" in refusal(pod, build.node())


def test_a_device_of_another_node_is_refused(build):
    assert "no device GPU-9 of resource" in refusal(build.pod("a", build.share(9)), build.node())


def test_a_failed_device_is_refused_with_its_cause(build):
    node = build.node(devices=[build.device(0, health="Failed", cause="XID 79")])
    assert "GPU-0 failed: XID 79" in refusal(build.pod("a", build.share()), node)


def test_more_memory_than_the_device_has_is_refused(build):
    pod = build.pod("a", build.share(memory_mib=1001))
    assert "it has 1000 MiB" in refusal(pod, build.node())


def test_an_annotation_that_changed_since_the_first_start_is_refused(build):
    node = build.node(records=[build.record("a", build.share(0))])
    assert "was changed" in refusal(build.pod("a", build.share(1)), node)


def test_a_changed_annotation_does_not_give_the_devices_of_another_container(build):
    given = build.record("a", build.share(0), container="x")
    swapped = build.pod("a", build.share(1), build.share(0), requests=build.requests(x=1, y=1))
    reason = refusal(swapped, build.node(records=[given]), container="y")
    assert "was changed" in reason


def test_a_restarted_container_gets_the_same_devices_while_the_other_runs(build):
    pod = build.pod("a", build.share(1), build.share(0), requests=build.requests(x=1, y=1))
    records = [
        build.record("a", build.share(1), container="x", tokens=("gpu-5",)),
        build.record("a", build.share(0), container="y", tokens=("gpu-6",)),
    ]
    node = build.node(records=records, pods=[pod])
    assert admit(build.start(pod, container="x"), node) == records[0]


def test_device_tokens_of_another_container_of_the_pod_start_nothing(build):
    pod = build.pod("a", build.share(1), build.share(0), requests=build.requests(x=1, y=1))
    record = build.record("a", build.share(1), container="x", tokens=ONE)
    decision = admit(build.start(pod, container="y"), build.node(records=[record]))
    assert isinstance(decision, Wait)
    assert "another pod or container" in decision.reason


def test_workers_of_a_shared_pod_can_open_each_others_gpus(build):
    asks = tuple(
        DeviceRequest(container=name, resource=names.GPU, count=1) for name in ("w-0", "w-1")
    )
    pod = build.pod("a", build.share(2), build.share(3), requests=asks, is_shared=True)
    first = admit(Start(pod, "w-0", names.GPU, ONE), build.node(pods=[pod]))
    assert (first.devices, first.peers) == ((build.share(2),), (build.share(3),))


def test_containers_of_other_pods_open_their_own_gpus_alone(build):
    asks = tuple(
        DeviceRequest(container=name, resource=names.GPU, count=1) for name in ("w-0", "w-1")
    )
    pod = build.pod("a", build.share(2), build.share(3), requests=asks)
    assert admit(Start(pod, "w-0", names.GPU, ONE), build.node(pods=[pod])).peers == ()


def test_a_worker_waits_while_another_pod_has_a_gpu_that_it_could_open(build):
    asks = tuple(
        DeviceRequest(container=name, resource=names.GPU, count=1) for name in ("w-0", "w-1")
    )
    pod = build.pod("a", build.share(2), build.share(3), requests=asks, is_shared=True)
    node = build.node(records=[build.record("old", build.share(3), tokens=("gpu-9",))])
    decision = admit(Start(pod, "w-0", names.GPU, ONE), node)
    assert isinstance(decision, Wait)
    assert decision.is_held
