# SPDX-License-Identifier: Apache-2.0
"""The kubelet's configuration is read from what its host shows, however it is laid out."""

import pathlib

import pytest

from gpupack_agent.host_files import Root
from gpupack_agent.kubelet_config import (
    KubeletConfig,
    KubeletSettings,
    read_kubelet,
    resolve_on_host,
)


class Host:
    def __init__(self, path):
        self.path = path

    def file(self, name, text=""):
        file = self.path / name.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def process(self, *words, number=7, cgroup="0::/system.slice/kubelet.service", uids="0 0"):
        self.file(f"/proc/{number}/cmdline", "\0".join(words) + "\0")
        self.file(f"/proc/{number}/cgroup", f"{cgroup}\n")
        self.file(f"/proc/{number}/status", "Name:\tx\nUid:\t" + "\t".join(uids.split()) + "\n")

    def kubelet(self):
        return read_kubelet(Root(self.path))


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def test_a_kubelet_without_settings_has_the_defaults_of_kubernetes(host):
    host.process("/usr/bin/kubelet")
    assert host.kubelet() == KubeletConfig(
        root_dir="/var/lib/kubelet",
        cgroup_root="/",
        runtime_endpoint="/run/containerd/containerd.sock",
        runs=True,
    )


@pytest.mark.parametrize("uids", ["1000 1000 1000 1000", "1000 0 0 0"], ids=["own", "setuid"])
def test_a_users_program_named_kubelet_is_ignored(host, uids):
    host.file("/odd.yaml", "cgroupRoot: /odd\n")
    host.process("kubelet", "--config=/odd.yaml", number=8, uids=uids)
    assert host.kubelet() == KubeletConfig()
    host.process("/usr/bin/kubelet")
    found = host.kubelet()
    assert (found.cgroup_root, found.problems) == ("/", ())


def test_without_a_running_kubelet_the_installed_configuration_counts(host):
    assert host.kubelet() == KubeletConfig()
    host.file(
        "/var/lib/kubelet/config.yaml",
        "cgroupDriver: systemd\ncontainerRuntimeEndpoint: unix:///run/crio/crio.sock\n",
    )
    found = host.kubelet()
    assert (found.runs, found.cgroup_driver) == (False, "systemd")
    assert found.runtime_endpoint == "/run/crio/crio.sock"
    assert found.cgroup_root is None


def test_the_configuration_file_is_read(host):
    host.process("/usr/bin/kubelet", "--config", "/etc/odd/kubelet.yaml")
    host.file(
        "/etc/odd/kubelet.yaml",
        "cgroupRoot: /odd\ncgroupDriver: cgroupfs\n"
        "containerRuntimeEndpoint: unix:///run/odd/containerd.sock\n",
    )
    found = host.kubelet()
    assert (found.cgroup_root, found.cgroup_driver) == ("/odd", "cgroupfs")
    assert found.runtime_endpoint == "/run/odd/containerd.sock"


def test_drop_ins_count_more_than_the_file_in_their_order_and_flags_count_most(host):
    host.process("kubelet", "--config=/c.yaml", "--config-dir=/c.d", "--cgroup-driver=systemd")
    host.file("/c.yaml", "cgroupRoot: /a\ncgroupDriver: cgroupfs\n")
    host.file("/c.d/20.conf", "cgroupRoot: /c\n")
    host.file("/c.d/10.conf", "cgroupRoot: /b\n")
    host.file("/c.d/30.yaml", "cgroupRoot: /ignored\n")
    found = host.kubelet()
    assert (found.cgroup_root, found.cgroup_driver) == ("/c", "systemd")


def test_k0s_has_another_root_dir(host):
    host.process(
        "/var/lib/k0s/bin/kubelet",
        "--root-dir=/var/lib/k0s/kubelet",
        "--config=/var/lib/k0s/kubelet-config.yaml",
        "--containerd=/run/k0s/containerd.sock",
    )
    host.file(
        "/var/lib/k0s/kubelet-config.yaml",
        "containerRuntimeEndpoint: unix:///run/k0s/containerd.sock\n",
    )
    found = host.kubelet()
    assert found.pod_resources_socket == "/var/lib/k0s/kubelet/pod-resources/kubelet.sock"
    assert found.runtime_endpoint == "/run/k0s/containerd.sock"


@pytest.mark.parametrize("words", [["/usr/local/bin/k3s server"], ["/usr/local/bin/k3s", "agent"]])
def test_k3s_runs_the_kubelet_in_itself(host, words):
    host.process(*words)
    assert host.kubelet().runtime_endpoint == "/run/k3s/containerd/containerd.sock"
    host.file(
        "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/00-k3s-defaults.conf",
        "cgroupDriver: cgroupfs\ncontainerRuntimeEndpoint: unix:///run/docker.sock\n",
    )
    host.file(
        "/etc/rancher/k3s/config.yaml", "kubelet-arg:\n- root-dir=/data\n- cgroup-root=/k3s\n"
    )
    found = host.kubelet()
    assert (found.root_dir, found.cgroup_root) == ("/data", "/k3s")
    assert (found.cgroup_driver, found.runtime_endpoint) == ("cgroupfs", "/run/docker.sock")


def test_microk8s_runs_the_kubelet_in_kubelite(host):
    host.process("/snap/microk8s/1/kubelite", "--scheduler-args-file=x")
    host.file(
        "/var/snap/microk8s/current/args/kubelet",
        '--root-dir="${SNAP_COMMON}/var/lib/kubelet"\n'
        '--container-runtime-endpoint="${SNAP_COMMON}/run/containerd.sock"\n',
    )
    found = host.kubelet()
    assert found.root_dir == "/var/snap/microk8s/common/var/lib/kubelet"
    assert found.runtime_endpoint == "/var/snap/microk8s/common/run/containerd.sock"


def test_a_kubelet_that_runs_in_a_pod_is_not_the_hosts(host):
    host.process("kubelet", "--root-dir=/a", cgroup="0::/kubepods/besteffort/pod0/x")
    assert not host.kubelet().runs


def test_two_different_kubelets_give_no_configuration(host):
    host.process("kubelet", "--root-dir=/a", number=7)
    host.process("kubelet", "--root-dir=/a", number=8)
    assert host.kubelet().root_dir == "/a"
    host.process("kubelet", "--root-dir=/b", number=9)
    found = host.kubelet()
    assert (found.root_dir, found.cgroup_root) == ("/var/lib/kubelet", None)
    assert found.problems == ("2 kubelets with different configurations run on this host",)


@pytest.mark.parametrize("text", ["a: [", "- a\n", "date: 2026-99-99\n", "\x00"])
def test_a_file_that_is_no_configuration_is_a_problem(host, text):
    host.process("kubelet", "--config=/c.yaml", "--root-dir=/a")
    host.file("/c.yaml", text)
    found = host.kubelet()
    assert (found.root_dir, found.cgroup_root) == ("/a", "/")


def test_an_administrators_settings_take_precedence(host):
    host.process("kubelet", "--root-dir=/a", "--cgroup-root=/b")
    settings = KubeletSettings(root_dir="/c", runtime_endpoint="unix:///run/d.sock")
    found = host.kubelet().with_settings(settings)
    assert (found.root_dir, found.cgroup_root) == ("/c", "/b")
    assert found.runtime_endpoint == "/run/d.sock"


def test_a_folder_that_is_a_link_is_followed_within_the_host(tmp_path):
    (tmp_path / "data/kubelet").mkdir(parents=True)
    (tmp_path / "var/lib").mkdir(parents=True)
    (tmp_path / "var/lib/kubelet").symlink_to("/data/kubelet")
    assert resolve_on_host(tmp_path, "/var/lib/kubelet") == tmp_path / "data/kubelet"
    assert resolve_on_host(tmp_path, "/none") == tmp_path / "none"
    assert resolve_on_host(pathlib.Path("/"), "/none") == pathlib.Path("/none")
