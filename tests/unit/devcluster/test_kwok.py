# SPDX-License-Identifier: Apache-2.0
"""Simulated nodes."""

import json

from gpupack_devcluster import kwok


class Recorder:
    """Replacement of kubectl: returns the existing nodes and records calls."""

    def __init__(self, present):
        self.present = present
        self.asked = []

    def __call__(self, *arguments, text_input=None):
        self.asked.append((arguments, text_input))
        return "\n".join(self.present) if arguments[0] == "get" else ""


def test_missing_nodes_are_made_and_surplus_ones_removed():
    kubectl = Recorder(["node/kwok-1", "node/kwok-7"])
    kwok.set_nodes(kubectl, 2)
    _, (delete, _), (_, created) = kubectl.asked
    assert delete == ("delete", "--wait=false", "node/kwok-7")
    assert [n["metadata"]["name"] for n in json.loads(created)["items"]] == ["kwok-2"]


def test_no_call_is_made_when_all_nodes_exist():
    kubectl = Recorder(["node/kwok-1"])
    kwok.set_nodes(kubectl, 1)
    assert len(kubectl.asked) == 1


def test_ordinary_pods_do_not_tolerate_a_simulated_node():
    node = kwok.node(1)
    assert node["metadata"]["annotations"] == {"kwok.x-k8s.io/node": "fake"}
    assert node["spec"]["taints"][0]["effect"] == "NoSchedule"
