# SPDX-License-Identifier: Apache-2.0
"""Simulated nodes."""

import json

from gpupack_devcluster import kwok


class Recorder:
    """Stands where kubectl stands: answers with the nodes there are, notes what is asked."""

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


def test_nothing_is_asked_for_when_all_is_as_wanted():
    kubectl = Recorder(["node/kwok-1"])
    kwok.set_nodes(kubectl, 1)
    assert len(kubectl.asked) == 1


def test_ordinary_pods_keep_away_from_a_simulated_node():
    node = kwok.node(1)
    assert node["metadata"]["annotations"] == {"kwok.x-k8s.io/node": "fake"}
    assert node["spec"]["taints"][0]["effect"] == "NoSchedule"
