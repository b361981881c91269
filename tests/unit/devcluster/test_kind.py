# SPDX-License-Identifier: Apache-2.0
"""What kind is told."""

import re
from pathlib import Path

import pytest

from gpupack_devcluster.errors import ToolMissing
from gpupack_devcluster.kind import KindCluster, cluster_config, process_pattern
from gpupack_devcluster.settings import ClusterSettings, Paths

SETTINGS = ClusterSettings(paths=Paths(Path("/s")))


def test_pods_run_on_workers_of_the_wanted_number():
    roles = [node["role"] for node in cluster_config(SETTINGS, 3)["nodes"]]
    assert roles == ["control-plane", "worker", "worker", "worker"]


@pytest.mark.parametrize(
    "line",
    ["kube-controller-manager --x", "/usr/bin/kube-controller-manager", "kube-controller-manager"],
)
def test_a_daemon_is_found_however_it_was_called(line):
    assert re.search(process_pattern("kube-controller-manager"), line)


@pytest.mark.parametrize("line", ["kubelet-helper", "sh -c kubelet", "/usr/bin/containerd-shim"])
def test_another_process_is_not_taken_for_a_daemon(line):
    assert not re.search(process_pattern("kubelet"), line)
    assert not re.search(process_pattern("containerd"), line)


def test_a_host_without_kind_is_told_so(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ToolMissing, match="CLUSTER=kind needs kind"):
        KindCluster(SETTINGS).up(nodes=2, kwok_nodes=0)
