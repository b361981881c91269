# SPDX-License-Identifier: Apache-2.0
"""A node's configuration."""

import dataclasses
import tomllib
from pathlib import Path

import pytest
import yaml

from gpupack_devcluster.driver import NodeComponent
from gpupack_devcluster.node_config import NodeConfig
from gpupack_devcluster.settings import SANDBOX_IMAGE, ClusterSettings, Paths


@pytest.fixture
def config():
    settings = ClusterSettings(paths=Paths(Path("/s")))
    return NodeConfig(settings=settings, index=2, cni_folder=Path("/cni"))


def test_containerd_keeps_its_images_on_the_nodes_disk_and_its_state_in_run(config):
    parsed = tomllib.loads(config.containerd())
    assert parsed["root"] == "/s/cluster/nodes/gpupack-2/containerd"
    assert parsed["state"] == "/run/containerd"


def test_containerd_reads_cdi_devices_and_never_drops_the_sandbox_image(config):
    plugins = tomllib.loads(config.containerd())["plugins"]
    assert plugins["io.containerd.cri.v1.runtime"]["cdi_spec_dirs"] == ["/etc/cdi", "/var/run/cdi"]
    assert plugins["io.containerd.cri.v1.images"]["pinned_images"]["sandbox"] == SANDBOX_IMAGE


def test_the_kubelet_never_deletes_images(config):
    kubelet = yaml.safe_load(config.files()["kubelet.yaml"])
    assert kubelet["imageGCHighThresholdPercent"] == 100
    assert kubelet["evictionHard"]["imagefs.available"] == "1%"


def test_the_kubelet_runs_on_both_versions_of_control_groups(config):
    assert config.kubelet()["failCgroupV1"] is False
    assert config.kubelet()["cgroupDriver"] == "cgroupfs"


def test_a_nodes_kubelet_can_have_other_settings(config):
    odd = dataclasses.replace(
        config, kubelet_flags=("--root-dir=/odd",), kubelet_fields={"cgroupRoot": "/odd"}
    )
    assert odd.command(NodeComponent.KUBELET)[-1] == "--root-dir=/odd"
    assert odd.kubelet() == config.kubelet() | {"cgroupRoot": "/odd"}


def test_pods_get_addresses_of_their_node_and_a_power_cut_frees_them(config):
    cable = config.pod_network()["plugins"][0]
    assert cable["ipam"]["ranges"] == [[{"subnet": "198.19.2.0/24"}]]
    assert cable["ipam"]["dataDir"].startswith("/run/")


def test_mounts_become_shared_after_they_are_made_and_booted_is_printed_last(config):
    lines = config.boot_script("mount cgroups\n").splitlines()
    shared = lines.index("mount --make-rshared /")
    assert all(not line.startswith("mount") for line in lines[shared + 1 :])
    assert lines[-1] == "touch /run/booted"


def test_a_daemon_is_started_by_its_own_name_so_that_it_is_found_again(config):
    for component in NodeComponent:
        assert Path(config.command(component)[0]) == Path("/s/bin") / component


def test_a_node_uses_the_cluster_dns_on_the_bridge(config):
    assert config.kubelet()["clusterDNS"] == ["198.18.0.1"]
    assert config.files()["resolv.conf"] == "nameserver 198.18.0.1\n"


def test_a_host_without_iptables_gives_its_pods_no_host_ports(config):
    assert [plugin["type"] for plugin in config.pod_network()["plugins"]] == ["ptp", "portmap"]
    bare = dataclasses.replace(config, host_ports=False)
    assert [plugin["type"] for plugin in bare.pod_network()["plugins"]] == ["ptp"]
