# SPDX-License-Identifier: Apache-2.0
from gpupack_agent.node_mode import NodeMode
from gpupack_crds import names
from gpupack_crds.gpunode import GpuDevice, GpuNodeStatus

NVIDIA = "nvidia.com/gpu"
OTHER = "example.org/gpu"
OURS = (names.GPU, names.GPU_SHARE)
IDS = frozenset({"GPU-0"})


def node_mode(*served, observed=(NVIDIA,)):
    """After the kubelet told which resources it has."""
    asked = NodeMode(observed)
    asked.see(dict.fromkeys(served, IDS))
    return asked


def may(asked):
    return asked.mode, *asked.resources, asked.may_register()


def test_a_node_where_nobody_else_serves_gpus_is_ours():
    assert may(node_mode(*OURS, "example.org/nic")) == ("owned", names.GPU, True)


def test_nothing_registers_before_the_kubelet_was_asked():
    assert may(NodeMode((NVIDIA,))) == ("owned", names.GPU, False)


def test_with_nothing_to_observe_nobody_is_asked():
    asked = NodeMode(())
    assert may(asked) == ("owned", names.GPU, True)
    assert not asked.observes


def test_a_node_where_another_plugin_serves_gpus_is_observed():
    assert may(node_mode(NVIDIA)) == ("observed", NVIDIA, False)


def test_a_plugin_that_comes_beside_ours_takes_the_node_over():
    asked = node_mode(*OURS)
    asked.see(dict.fromkeys((*OURS, NVIDIA), IDS))
    assert may(asked) == ("observed", NVIDIA, False)


def test_a_restart_of_the_other_plugin_does_not_give_its_node_to_us():
    asked = node_mode(NVIDIA)
    asked.see({})
    assert may(asked) == ("observed", NVIDIA, False)


def test_several_plugins_serve_one_node():
    asked = node_mode(NVIDIA, OTHER, observed=(OTHER, NVIDIA))
    assert may(asked) == ("observed", OTHER, NVIDIA, False)


def test_a_plugin_that_comes_to_an_observed_node_is_observed_too():
    asked = node_mode(NVIDIA, observed=(OTHER, NVIDIA))
    asked.see({OTHER: IDS})
    assert may(asked) == ("observed", OTHER, NVIDIA, False)


def test_each_gpu_is_of_the_resource_whose_plugin_shows_it():
    asked = NodeMode((NVIDIA, OTHER))
    asked.see({NVIDIA: {"GPU-0"}, OTHER: {"GPU-1::0", "GPU-1::1"}})
    assert [asked.resource_of(f"GPU-{each}") for each in range(3)] == [NVIDIA, OTHER, NVIDIA]


def test_a_gpu_that_its_plugin_does_not_show_for_now_is_still_of_its_resource():
    asked = NodeMode((NVIDIA, OTHER))
    asked.see({NVIDIA: {"GPU-0"}, OTHER: {"GPU-1"}})
    asked.see({NVIDIA: {"GPU-0"}})
    assert asked.resource_of("GPU-1") == OTHER


def test_a_gpu_that_two_plugins_show_is_of_the_first_of_their_resources():
    asked = NodeMode((OTHER, NVIDIA))
    asked.see({NVIDIA: {"GPU-0"}, OTHER: {"GPU-0::0"}})
    assert asked.resource_of("GPU-0") == OTHER


def test_every_gpu_of_a_node_of_ours_is_of_our_resource():
    assert node_mode(*OURS).resource_of("GPU-0") == names.GPU


def test_of_which_resource_a_gpu_is_outlives_the_agent():
    gpu = GpuDevice(uuid="GPU-1", index=1, model="H100", memory_mib=1, resource=OTHER)
    asked = NodeMode((NVIDIA, OTHER))
    asked.recall(GpuNodeStatus(mode="observed", resources=(NVIDIA, OTHER), devices=(gpu,)))
    asked.see({})
    assert (*asked.resources, asked.resource_of("GPU-1")) == (NVIDIA, OTHER, OTHER)


def test_what_a_plugin_shows_now_counts_before_what_gpunode_recorded():
    gpu = GpuDevice(uuid="GPU-1", index=1, model="H100", memory_mib=1, resource=OTHER)
    asked = NodeMode((NVIDIA, OTHER))
    asked.see({NVIDIA: {"GPU-1"}})
    asked.recall(GpuNodeStatus(mode="observed", resources=(NVIDIA, OTHER), devices=(gpu,)))
    assert asked.resource_of("GPU-1") == NVIDIA


def test_no_more_resources_are_told_than_gpunode_takes():
    many = tuple(f"example.org/gpu-{number:02}" for number in range(40))
    assert node_mode(*many, observed=many).resources == many[:32]


def test_what_gpunode_says_is_observed_stays_so_while_the_other_plugin_is_away():
    asked = NodeMode((NVIDIA,))
    asked.recall(GpuNodeStatus(mode="observed", resources=(NVIDIA,)))
    asked.see({})
    assert may(asked) == ("observed", NVIDIA, False)


def test_a_resource_that_is_observed_no_more_does_not_give_its_nodes_to_us():
    asked = NodeMode(())
    asked.recall(GpuNodeStatus(mode="observed", resources=(NVIDIA,)))
    assert may(asked) == ("observed", NVIDIA, False)


def test_what_gpunode_says_is_owned_may_have_got_another_plugin_since():
    asked = node_mode(NVIDIA)
    asked.recall(GpuNodeStatus(mode="owned"))
    assert may(asked) == ("observed", NVIDIA, False)


def test_deleting_the_gpunode_gives_the_node_to_us_once_the_other_plugin_is_gone():
    asked = node_mode(NVIDIA)
    asked.forget()
    assert not asked.may_register()
    asked.see({})
    assert may(asked) == ("owned", names.GPU, True)


def test_deleting_the_gpunode_while_the_other_plugin_serves_changes_nothing():
    asked = node_mode(NVIDIA)
    asked.forget()
    asked.see({NVIDIA: IDS})
    assert may(asked) == ("observed", NVIDIA, False)


def test_deleting_the_gpunode_of_our_node_leaves_our_plugins_registered():
    asked = node_mode(*OURS)
    asked.forget()
    assert asked.may_register()


def test_a_gpu_of_our_inventory_is_of_no_other_vendors_resource():
    amd = "amd.com/gpu"
    asked = NodeMode((amd, NVIDIA), others=(amd,))
    asked.see({amd: {"0000:c1:00.0"}, NVIDIA: {"GPU-0"}})
    assert [asked.resource_of(each) for each in ("GPU-0", "GPU-1")] == [NVIDIA, NVIDIA]


def test_beside_plugins_of_other_vendors_alone_a_gpu_of_ours_is_handed_out_by_nobody():
    amd = "amd.com/gpu"
    asked = NodeMode((amd, NVIDIA), others=(amd,))
    asked.see({amd: {"0000:c1:00.0"}})
    assert (asked.mode, asked.resource_of("GPU-0")) == ("observed", names.GPU)
