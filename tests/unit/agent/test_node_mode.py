# SPDX-License-Identifier: Apache-2.0
from gpupack_agent.node_mode import NodeMode
from gpupack_crds import names
from gpupack_crds.gpunode import GpuNodeStatus

NVIDIA = "nvidia.com/gpu"
OTHER = "example.org/gpu"
OURS = frozenset({names.GPU, names.GPU_SHARE})


def node_mode(*served, observed=(NVIDIA,)):
    """After the kubelet told which resources it has."""
    asked = NodeMode(observed)
    asked.see(frozenset(served))
    return asked


def may(asked):
    return asked.mode, asked.resource, asked.may_register()


def test_a_node_where_nobody_else_serves_gpus_is_ours():
    assert may(node_mode(*OURS, "example.org/nic")) == ("owned", names.GPU, True)


def test_nothing_registers_before_the_kubelet_was_asked():
    assert may(NodeMode((NVIDIA,))) == ("owned", names.GPU, False)


def test_with_nothing_to_observe_nobody_is_asked():
    asked = NodeMode(())
    assert may(asked) == ("owned", names.GPU, True)
    assert not asked.undecided


def test_a_node_where_another_plugin_serves_gpus_is_observed():
    assert may(node_mode(NVIDIA)) == ("observed", NVIDIA, False)


def test_a_plugin_that_comes_beside_ours_takes_the_node_over():
    asked = node_mode(*OURS)
    asked.see(OURS | {NVIDIA})
    assert may(asked) == ("observed", NVIDIA, False)


def test_a_restart_of_the_other_plugin_does_not_give_its_node_to_us():
    asked = node_mode(NVIDIA)
    asked.see(frozenset())
    assert may(asked) == ("observed", NVIDIA, False)
    assert not asked.undecided


def test_of_several_plugins_the_first_that_is_configured_counts():
    assert node_mode(NVIDIA, OTHER, observed=(OTHER, NVIDIA)).resource == OTHER


def test_what_gpunode_says_is_observed_stays_so_while_the_other_plugin_is_away():
    asked = NodeMode((NVIDIA,))
    asked.recall(GpuNodeStatus(mode="observed", resource_name=NVIDIA))
    asked.see(frozenset())
    assert may(asked) == ("observed", NVIDIA, False)


def test_a_resource_that_is_observed_no_more_does_not_give_its_nodes_to_us():
    asked = NodeMode(())
    asked.recall(GpuNodeStatus(mode="observed", resource_name=NVIDIA))
    assert may(asked) == ("observed", NVIDIA, False)


def test_what_gpunode_says_is_owned_may_have_got_another_plugin_since():
    asked = node_mode(NVIDIA)
    asked.recall(GpuNodeStatus(mode="owned"))
    assert may(asked) == ("observed", NVIDIA, False)


def test_deleting_the_gpunode_gives_the_node_to_us_once_the_other_plugin_is_gone():
    asked = node_mode(NVIDIA)
    asked.forget()
    assert not asked.may_register()
    asked.see(frozenset())
    assert may(asked) == ("owned", names.GPU, True)


def test_deleting_the_gpunode_while_the_other_plugin_serves_changes_nothing():
    asked = node_mode(NVIDIA)
    asked.forget()
    asked.see(frozenset({NVIDIA}))
    assert may(asked) == ("observed", NVIDIA, False)


def test_deleting_the_gpunode_of_our_node_leaves_our_plugins_registered():
    asked = node_mode(*OURS)
    asked.forget()
    assert asked.may_register()
