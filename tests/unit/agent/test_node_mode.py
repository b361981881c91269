# SPDX-License-Identifier: Apache-2.0
from gpupack_agent.node_mode import NodeMode
from gpupack_crds import names
from gpupack_crds.gpunode import GpuDevice, GpuNodeStatus

NVIDIA = "nvidia.com/gpu"
OTHER = "example.org/gpu"
OURS = (names.GPU, names.GPU_SHARE)
IDS = frozenset({"GPU-0"})


def node_mode(*served, observed=(NVIDIA,)):
    """Return the mode after the kubelet has listed these resources."""
    checked = NodeMode(observed)
    checked.update(dict.fromkeys(served, IDS))
    return checked


def may(checked):
    return checked.mode, *checked.resources, checked.may_register()


def test_a_node_without_other_plugins_is_owned():
    assert may(node_mode(*OURS, "example.org/nic")) == ("owned", names.GPU, True)


def test_nothing_registers_before_the_kubelet_has_answered():
    assert may(NodeMode((NVIDIA,))) == ("owned", names.GPU, False)


def test_without_resources_to_observe_the_kubelet_is_not_queried():
    checked = NodeMode(())
    assert may(checked) == ("owned", names.GPU, True)
    assert not checked.observes


def test_a_node_where_another_plugin_serves_gpus_is_observed():
    assert may(node_mode(NVIDIA)) == ("observed", NVIDIA, False)


def test_a_plugin_that_is_installed_alongside_gpupack_makes_the_node_observed():
    checked = node_mode(*OURS)
    checked.update(dict.fromkeys((*OURS, NVIDIA), IDS))
    assert may(checked) == ("observed", NVIDIA, False)


def test_a_restart_of_the_other_plugin_does_not_give_its_node_to_us():
    checked = node_mode(NVIDIA)
    checked.update({})
    assert may(checked) == ("observed", NVIDIA, False)


def test_several_plugins_serve_one_node():
    checked = node_mode(NVIDIA, OTHER, observed=(OTHER, NVIDIA))
    assert may(checked) == ("observed", OTHER, NVIDIA, False)


def test_a_plugin_that_comes_to_an_observed_node_is_observed_too():
    checked = node_mode(NVIDIA, observed=(OTHER, NVIDIA))
    checked.update({OTHER: IDS})
    assert may(checked) == ("observed", OTHER, NVIDIA, False)


def test_each_gpu_has_the_resource_of_the_plugin_that_shows_it():
    checked = NodeMode((NVIDIA, OTHER))
    checked.update({NVIDIA: {"GPU-0"}, OTHER: {"GPU-1::0", "GPU-1::1"}})
    assert [checked.resource_of(f"GPU-{each}") for each in range(3)] == [NVIDIA, OTHER, NVIDIA]


def test_a_gpu_that_its_plugin_does_not_show_for_now_is_still_of_its_resource():
    checked = NodeMode((NVIDIA, OTHER))
    checked.update({NVIDIA: {"GPU-0"}, OTHER: {"GPU-1"}})
    checked.update({NVIDIA: {"GPU-0"}})
    assert checked.resource_of("GPU-1") == OTHER


def test_a_gpu_that_two_plugins_show_is_of_the_first_of_their_resources():
    checked = NodeMode((OTHER, NVIDIA))
    checked.update({NVIDIA: {"GPU-0"}, OTHER: {"GPU-0::0"}})
    assert checked.resource_of("GPU-0") == OTHER


def test_every_gpu_of_a_node_of_ours_is_of_our_resource():
    assert node_mode(*OURS).resource_of("GPU-0") == names.GPU


def test_the_resource_of_a_gpu_outlives_the_agent():
    gpu = GpuDevice(uuid="GPU-1", index=1, model="H100", memory_mib=1, resource=OTHER)
    checked = NodeMode((NVIDIA, OTHER))
    checked.restore(GpuNodeStatus(mode="observed", resources=(NVIDIA, OTHER), devices=(gpu,)))
    checked.update({})
    assert (*checked.resources, checked.resource_of("GPU-1")) == (NVIDIA, OTHER, OTHER)


def test_a_present_plugin_takes_precedence_over_gpunode():
    gpu = GpuDevice(uuid="GPU-1", index=1, model="H100", memory_mib=1, resource=OTHER)
    checked = NodeMode((NVIDIA, OTHER))
    checked.update({NVIDIA: {"GPU-1"}})
    checked.restore(GpuNodeStatus(mode="observed", resources=(NVIDIA, OTHER), devices=(gpu,)))
    assert checked.resource_of("GPU-1") == NVIDIA


def test_no_more_resources_are_reported_than_gpunode_accepts():
    many = tuple(f"example.org/gpu-{number:02}" for number in range(40))
    assert node_mode(*many, observed=many).resources == many[:32]


def test_a_recorded_observed_node_stays_observed_without_the_other_plugin():
    checked = NodeMode((NVIDIA,))
    checked.restore(GpuNodeStatus(mode="observed", resources=(NVIDIA,)))
    checked.update({})
    assert may(checked) == ("observed", NVIDIA, False)


def test_a_resource_that_is_observed_no_more_does_not_give_its_nodes_to_us():
    checked = NodeMode(())
    checked.restore(GpuNodeStatus(mode="observed", resources=(NVIDIA,)))
    assert may(checked) == ("observed", NVIDIA, False)


def test_a_recorded_owned_node_can_have_become_observed():
    checked = node_mode(NVIDIA)
    checked.restore(GpuNodeStatus(mode="owned"))
    assert may(checked) == ("observed", NVIDIA, False)


def test_deleting_the_gpunode_makes_the_node_owned_once_the_other_plugin_is_removed():
    checked = node_mode(NVIDIA)
    checked.forget()
    assert not checked.may_register()
    checked.update({})
    assert may(checked) == ("owned", names.GPU, True)


def test_deleting_the_gpunode_while_the_other_plugin_serves_changes_nothing():
    checked = node_mode(NVIDIA)
    checked.forget()
    checked.update({NVIDIA: IDS})
    assert may(checked) == ("observed", NVIDIA, False)


def test_deleting_the_gpunode_of_our_node_leaves_our_plugins_registered():
    checked = node_mode(*OURS)
    checked.forget()
    assert checked.may_register()


def test_a_gpu_of_our_inventory_is_of_no_other_vendors_resource():
    amd = "amd.com/gpu"
    checked = NodeMode((amd, NVIDIA), others=(amd,))
    checked.update({amd: {"0000:c1:00.0"}, NVIDIA: {"GPU-0"}})
    assert [checked.resource_of(each) for each in ("GPU-0", "GPU-1")] == [NVIDIA, NVIDIA]


def test_with_only_plugins_of_other_vendors_an_nvidia_gpu_is_not_handed_out():
    amd = "amd.com/gpu"
    checked = NodeMode((amd, NVIDIA), others=(amd,))
    checked.update({amd: {"0000:c1:00.0"}})
    assert (checked.mode, checked.resource_of("GPU-0")) == ("observed", names.GPU)
