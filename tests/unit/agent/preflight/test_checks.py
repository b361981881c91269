# SPDX-License-Identifier: Apache-2.0
"""Findings on hosts, and the changes that they request."""

import pathlib
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpupack_agent.host_files import Root
from gpupack_agent.preflight.checks import findings
from gpupack_agent.preflight.host import read_host

V2 = '[plugins."io.containerd.grpc.v1.cri"]\n'
V3 = '[plugins."io.containerd.cri.v1.runtime"]\n'


def test_a_host_that_is_ready_has_nothing_to_change(ready):
    found = ready.found()
    assert {each.status for each in found.values()} == {"ok"}
    assert [each.change for each in found.values() if each.change] == []
    assert found["driver"].found == "580.159.04, same version of module and libraries"
    host = read_host(ready.path)
    assert (host.name, host.system, host.kernel.release) == ("gpu-1", "Ubuntu 24.04.3 LTS", "6.8.0")


def test_a_host_without_gpus_needs_no_driver(root):
    root.file("sys/bus/pci/devices/0000:00:02.0/vendor", "0x8086\n")
    found = root.found()
    assert found["gpus"].status == "ok"
    assert "driver" not in found


def test_without_a_list_of_pci_devices_the_driver_is_searched(root):
    found = root.found()
    assert (found["gpus"].status, found["driver"].status) == ("unknown", "failure")


def test_a_gpu_without_a_driver(root):
    root.gpu()
    found = root.found()
    assert (found["driver"].status, found["device nodes"].status) == ("failure", "unknown")
    assert "modprobe nvidia" in found["driver"].change


@pytest.mark.parametrize(
    ("module", "library", "status", "words"),
    [
        ("580.159.04", "580.159.04", "ok", "same version"),
        ("580.159.04", "575.57.08", "failure", "module 580.159.04, libraries 575.57.08"),
        ("", "575.57.08", "failure", "not loaded"),
    ],
)
def test_module_and_libraries_must_be_of_one_version(root, module, library, status, words):
    root.gpu()
    root.driver(module=module, library=library)
    found = root.found()["driver"]
    assert (found.status, words in found.found) == (status, True)


def test_a_driver_without_its_libraries(root):
    root.gpu()
    root.file("proc/driver/nvidia/version", "NVIDIA UNIX x86_64 Kernel Module  535.1.2  now\n")
    assert "module 535.1.2, and none of its libraries" in root.found()["driver"].found


def test_missing_device_nodes_are_a_failure(ready):
    (ready.path / "dev/nvidia-uvm").unlink()
    found = ready.found()["device nodes"]
    assert (found.status, "nvidia-modprobe" in found.change) == ("failure", True)


def test_with_systemd_nodes_need_their_links_by_number(ready):
    ready.containerd(V3 + "containerd.runtimes.runc.options.SystemdCgroup = true\n")
    assert ready.found()["device nodes"].status == "ok"
    (ready.path / "dev/char/0:0").unlink()
    found = ready.found()["device nodes"]
    assert (found.status, "create-dev-char-symlinks" in found.change) == ("warning", True)


@pytest.mark.parametrize(
    ("kinds", "status"),
    [(["DMA-FQ", "DMA-FQ"], "warning"), (["identity", "identity"], "ok"), (["DMA"], "ok")],
)
def test_an_iommu_between_gpus_is_a_warning(root, kinds, status):
    root.driver()
    for number, kind in enumerate(kinds):
        root.gpu(f"0000:{number}b:00.0", kind)
    root.file("proc/cmdline", "quiet intel_iommu=on root=/dev/sda\n")
    found = root.found()["peer to peer"]
    assert (found.status, "intel_iommu=on" in found.found) == (status, status == "warning")


@pytest.mark.parametrize(
    ("version", "config", "status"),
    [
        ("v2.1.4", "", "ok"),
        ("v2.1.4", f"version = 3\n{V3}enable_cdi = false\n", "failure"),
        ("v2.1.4", f"version = 2\n{V2}enable_cdi = false\n", "failure"),
        ("v1.7.27", "", "failure"),
        ("v1.7.27", f"version = 2\n{V2}enable_cdi = true\n", "ok"),
        ("v1.7.27", f'{V2}enable_cdi = true\ncdi_spec_dirs = ["/etc/cdi"]\n', "failure"),
        ("v2.1.4", f'version = 3\n{V3}cdi_spec_dirs = ["/run/cdi"]\n', "ok"),
        ("(devel)", "version = 3\n", "failure"),
        ("v1.6.33", f"version = 2\n{V2}enable_cdi = true\n", "failure"),
    ],
)
def test_cdi_is_on_by_default_from_containerd_2_on_and_must_be_where_we_write(
    root, version, config, status
):
    root.containerd(config, version=version)
    found = root.found()["cdi"]
    assert found.status == status
    assert bool(found.change) == (status == "failure")


def test_before_containerd_2_an_imported_section_replaces_the_whole_of_the_files(root):
    config = f'version = 2\nimports = ["more.toml"]\n{V2}enable_cdi = true\n'
    root.file("etc/containerd/more.toml", f'version = 2\n{V2}sandbox_image = "pause"\n')
    root.containerd(config, version="v1.7.27")
    assert root.found()["cdi"].status == "failure"
    root.containerd(config, version="v2.1.4")
    assert root.found()["cdi"].status == "ok"


def test_a_containerd_that_serves_no_kubelet(root):
    root.containerd('disabled_plugins = ["cri"]\n')
    found = root.found()["container runtime"]
    assert (found.status, "disabled_plugins" in found.change) == ("failure", True)


def test_the_full_version_is_shown(root):
    root.containerd(version="v2.1.4")
    assert root.found()["container runtime"].found.startswith("containerd 2.1.4, ")


def test_a_containerd_of_unknown_version_is_judged_by_its_configuration(root):
    root.file("etc/containerd/config.toml", "version = 3\n")
    assert root.found()["cdi"].status == "ok"
    root.file("etc/containerd/config.toml", "version = 2\n")
    assert root.found()["cdi"].status == "unknown"


def test_without_a_runtime_nothing_is_known_of_cdi(root):
    found = root.found()
    assert (found["container runtime"].status, found["cdi"].status) == ("unknown", "unknown")


def test_the_configuration_of_the_containerd_that_runs_counts(root):
    root.containerd(f"version = 3\n{V3}enable_cdi = false\n")
    root.process(9, "/usr/bin/containerd", "--config", "/opt/containerd.toml")
    root.file("opt/containerd.toml", "version = 3\n")
    found = root.found()
    assert found["cdi"].status == "ok"
    assert "/opt/containerd.toml" in found["container runtime"].found


def test_a_containerd_inside_a_pod_is_not_the_nodes(root):
    root.containerd("version = 3\n")
    root.process(9, "/usr/bin/containerd", "--config=/x", cgroup="0::/kubepods/burstable/pod1/c")
    assert "/etc/containerd/config.toml" in root.found()["container runtime"].found


def test_later_imports_take_precedence_and_loops_end(root):
    imports = 'imports = ["/etc/containerd/conf.d/*.toml"]\n'
    root.containerd(f"version = 2\n{imports}{V2}enable_cdi = false\n", version="v1.7.27")
    root.file("etc/containerd/conf.d/99-cdi.toml", f"{imports}{V2}enable_cdi = true\n")
    root.file("etc/containerd/conf.d/skipped.txt", f"{V2}enable_cdi = false\n")
    assert root.found()["cdi"].status == "ok"


@pytest.mark.parametrize("text", ["enable_cdi = ", "\x00\xff", "[" * 5000, "a" * (1 << 20) + "b"])
def test_an_unreadable_configuration_is_a_failure_without_a_traceback(root, text):
    root.containerd(text)
    found = root.found()["container runtime"]
    assert (found.status, "config.toml" in found.found) == ("failure", True)


@pytest.mark.parametrize("text", ["x = " + "1" * 5000, "x = 2024-99-99", "\x00", "[" * 5000])
def test_invalid_files_cause_no_traceback(ready, text):
    for name in (
        "etc/containerd/config.toml",
        "etc/nvidia-container-runtime/config.toml",
        "var/lib/kubelet/config.yaml",
    ):
        ready.file(name, text)
    statuses = ready.statuses()
    assert statuses["container runtime"] == "failure"
    assert (statuses["cdi"], statuses["nvidia runtime"]) == ("unknown", "unknown")


@given(st.binary(max_size=200))
def test_no_configuration_of_whatever_bytes_has_a_traceback(rubbish):
    with tempfile.TemporaryDirectory() as folder:
        host = pathlib.Path(folder)
        for name in (
            "etc/containerd/config.toml",
            "etc/nvidia-container-runtime/config.toml",
            "etc/os-release",
            "proc/1/cmdline",
            "proc/driver/nvidia/version",
            "var/lib/kubelet/config.yaml",
        ):
            (host / name).parent.mkdir(parents=True, exist_ok=True)
            (host / name).write_bytes(rubbish)
        assert findings(read_host(host))


def test_a_sparse_configuration_of_a_gigabyte_is_refused_by_its_size(root):
    with root.file("etc/containerd/config.toml").open("wb") as opened:
        opened.truncate(1 << 30)
    assert "is not a file of at most 1 MiB" in root.found()["container runtime"].found


@pytest.mark.parametrize("closed", ["etc/containerd", "etc/containerd/config.toml"])
def test_an_unreadable_file_does_not_mean_the_default(root, closed, monkeypatch):
    """Root reads everything, so the test replaces the kernel's answer."""
    root.containerd(f"version = 3\n{V3}enable_cdi = false\n")
    monkeypatch.setattr(Root, "is_unreadable", lambda _, name: name.startswith(f"/{closed}"))
    found = root.found()
    assert (found["container runtime"].status, found["cdi"].status) == ("unknown", "unknown")
    assert found["container runtime"].change == "run this as root"


@pytest.mark.parametrize("wrong", ["plugins = 3\n", 'version = "3"\n', f"{V3}enable_cdi = 1\n"])
def test_fields_of_wrong_types_say_nothing(root, wrong):
    root.containerd(wrong)
    assert root.found()["cdi"].status == "ok"


def test_crio_has_cdi_unless_its_folders_are_emptied(root):
    root.file("etc/crio/crio.conf", "[crio.runtime]\n")
    assert root.found()["cdi"].status == "ok"
    root.file("etc/crio/crio.conf.d/10.conf", "[crio.runtime]\ncdi_spec_dirs = []\n")
    found = root.found()["cdi"]
    assert (found.status, "CRI-O" in found.change) == ("failure", True)


def test_kubelet_and_runtime_must_make_cgroups_alike(ready):
    ready.containerd(V3 + "containerd.runtimes.runc.options.SystemdCgroup = false\n")
    found = ready.found()["cgroups"]
    assert (found.status, "containerd with cgroupfs" in found.found) == ("failure", True)


def test_cgroups_of_version_1_are_a_warning(ready):
    (ready.path / "sys/fs/cgroup/cgroup.controllers").unlink()
    assert ready.found()["cgroups"].status == "unknown"
    (ready.path / "sys/fs/cgroup/memory").mkdir()
    assert ready.found()["cgroups"].status == "warning"


NVIDIA = "containerd.default_runtime_name = 'nvidia'\n"
FLAG = "accept-nvidia-visible-devices-envvar-when-unprivileged = {}\n"


@pytest.mark.parametrize(
    ("config", "flag", "status"),
    [
        (NVIDIA, "", "failure"),
        (NVIDIA, FLAG.format("true"), "failure"),
        (NVIDIA, FLAG.format("false"), "ok"),
        (NVIDIA, FLAG.format(""), "unknown"),
        ("", "", "warning"),
        ("", FLAG.format("false"), "ok"),
    ],
)
def test_nvidias_runtime_must_not_give_gpus_to_containers_that_name_them(
    root, config, flag, status
):
    root.containerd(f"version = 3\n{V3}{config}")
    root.file("etc/nvidia-container-runtime/config.toml", flag)
    assert root.found()["nvidia runtime"].status == status


def test_gpus_by_mounts_are_a_warning(root):
    mounts = "accept-nvidia-visible-devices-as-volume-mounts = true\n"
    root.file("etc/nvidia-container-runtime/config.toml", FLAG.format("false") + mounts)
    found = root.found()["nvidia runtime"]
    assert (found.status, "/dev/null" in found.found) == ("warning", True)


def test_without_nvidias_runtime_there_is_no_warning(root):
    assert root.found()["nvidia runtime"].status == "ok"


def test_nvidias_device_plugin_makes_a_node_an_observed_one(ready):
    ready.kubelet("nvidia-gpu.sock", "gpupack.dev-gpu.sock", "other.sock")
    found = ready.found()["device plugins"]
    assert (found.status, "nvidia-gpu.sock" in found.found) == ("warning", True)


def test_a_kubelet_without_pod_resources_is_a_failure(ready):
    (ready.path / "var/lib/kubelet/pod-resources/kubelet.sock").unlink()
    assert ready.found()["kubelet"].status == "failure"


def test_a_foreign_mps_daemon_is_a_warning(ready):
    pod = "0::/../../pod12345678-1/c"
    ready.process(50, "nvidia-cuda-mps-control", "-f", cgroup=pod)
    assert ready.found()["mps"].status == "ok"
    ready.process(51, "/usr/bin/nvidia-cuda-mps-control", "-d")
    assert ready.found()["mps"].status == "warning"


def test_a_host_without_a_persistence_daemon_gets_a_warning(ready):
    ready.process(77, "/usr/bin/sleep")
    assert ready.found()["persistence"].status == "warning"
