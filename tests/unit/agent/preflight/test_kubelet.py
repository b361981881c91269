# SPDX-License-Identifier: Apache-2.0
"""The kubelet as it is configured, and the container runtime that it uses, are judged."""

import pytest

from gpupack_agent.kubelet_config import KubeletSettings

V3 = '[plugins."io.containerd.cri.v1.runtime"]\n'
K3S = "/run/k3s/containerd/containerd.sock"


def containerd(root, number, config, text, *more):
    root.process(number, "/usr/bin/containerd", "--config", config, *more)
    root.file(config.lstrip("/"), f"version = 3\n{text}")


def kubelet(root, endpoint, *more):
    root.process(5, "kubelet", f"--container-runtime-endpoint=unix://{endpoint}", *more)


@pytest.mark.parametrize(("endpoint", "status"), [(K3S, "ok"), ("/run/docker.sock", "failure")])
def test_of_two_containerds_the_one_that_the_kubelet_uses_is_judged(root, endpoint, status):
    containerd(root, 8, "/k3s.toml", "", "--address", K3S)
    containerd(
        root, 9, "/docker.toml", f'[grpc]\naddress = "/run/docker.sock"\n{V3}enable_cdi = false\n'
    )
    kubelet(root, endpoint)
    assert root.found()["cdi"].status == status


def test_a_socket_is_known_by_each_of_its_names(root):
    containerd(root, 8, "/a.toml", "")
    kubelet(root, "/var/run/containerd/containerd.sock")
    assert root.found()["container runtime"].status == "ok"
    root.link("opt/link.sock", "/run/containerd/containerd.sock")
    root.file("run/containerd/containerd.sock")
    kubelet(root, "/opt/link.sock")
    assert root.found()["container runtime"].status == "ok"


def test_cri_o_is_judged_where_the_kubelet_uses_it_and_containerd_runs_too(root):
    containerd(root, 8, "/docker.toml", f"{V3}enable_cdi = false\n")
    root.process(9, "/usr/bin/crio")
    root.file("etc/crio/crio.conf", "")
    kubelet(root, "/var/run/crio/crio.sock")
    found = root.found()
    assert found["container runtime"].found.startswith("cri-o")
    assert found["cdi"].status == "ok"


def test_a_runtime_that_the_kubelet_does_not_use_is_not_called_right(root):
    containerd(root, 8, "/docker.toml", "")
    kubelet(root, "/run/cri-dockerd.sock")
    found = root.found()
    assert found["container runtime"].status == "unknown"
    assert "the kubelet uses /run/cri-dockerd.sock" in found["container runtime"].found
    assert "containerd at /run/containerd/containerd.sock" in found["container runtime"].found
    assert found["cdi"].status == "unknown"


def test_two_runtimes_without_a_kubelet_are_unknown(root):
    containerd(root, 8, "/a.toml", "")
    root.process(9, "/usr/bin/crio")
    found = root.found()["container runtime"]
    assert (found.status, "set kubelet.runtimeEndpoint" in found.change) == ("unknown", True)
    known = KubeletSettings(runtime_endpoint="unix:///run/containerd/containerd.sock")
    assert root.found(kubelet=known)["container runtime"].status == "ok"


def test_a_runtime_without_a_running_kubelet_is_checked_with_a_note(root):
    root.containerd("version = 3\n")
    found = root.found()["container runtime"]
    assert (found.status, "no kubelet runs" in found.found) == ("ok", True)


def test_a_kubelet_with_another_root_dir(root):
    kubelet(root, K3S, "--root-dir=/data/kubelet", "--cgroup-root=/odd")
    root.file("var/lib/kubelet/device-plugins/kubelet.sock")
    assert root.found()["kubelet"].status == "failure"
    root.file("data/kubelet/pod-resources/kubelet.sock")
    found = root.found()
    assert (found["kubelet"].status, "/data/kubelet" in found["kubelet"].found) == ("ok", True)
    assert "pods below /odd" in found["cgroups"].found


def test_a_value_that_the_kubelet_has_otherwise_is_a_failure(root):
    kubelet(root, K3S, "--root-dir=/data/kubelet")
    root.file("var/lib/kubelet/device-plugins/kubelet.sock")
    found = root.found(kubelet=KubeletSettings(root_dir="/var/lib/kubelet", cgroup_root="/"))
    assert found["kubelet"].status == "failure"
    assert found["kubelet"].found == (
        "kubelet.rootDir is /var/lib/kubelet, and the kubelet uses /data/kubelet"
    )


def test_a_driver_in_an_unusual_folder_is_found_by_its_setting(root):
    root.gpu()
    root.file("proc/driver/nvidia/version", "Kernel Module  580.1  Release\n")
    root.file("opt/odd/lib/libcuda.so.580.1")
    root.link("opt/odd/lib/libcuda.so.1", "libcuda.so.580.1")
    assert root.found()["driver"].status == "failure"
    found = root.found(driver_root="/opt/odd")["driver"]
    assert (found.status, found.found) == (
        "ok",
        "580.1, same version of module and libraries, below /opt/odd",
    )
