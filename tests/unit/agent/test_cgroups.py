# SPDX-License-Identifier: Apache-2.0
import contextlib
import resource

import pytest

from gpupack_agent.cgroups import Cgroups, CgroupState, pod_of

UID = "1f0c-22-ab"

PATHS = {
    "guaranteed, cgroupfs": f"kubepods/pod{UID}",
    "burstable, cgroupfs": f"kubepods/burstable/pod{UID}",
    "besteffort, systemd": (
        "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1f0c_22_ab.slice"
    ),
    "guaranteed, systemd": "kubepods.slice/kubepods-pod1f0c_22_ab.slice",
    "kind": (
        "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
        "kubelet-kubepods-burstable-pod1f0c_22_ab.slice"
    ),
}


def tree(root, path, **files):
    (root / path).mkdir(parents=True)
    for name, text in files.items():
        (root / path / name.replace("_", ".")).write_text(text)
    return Cgroups(root)


@contextlib.contextmanager
def no_free_file_descriptor():
    """Every open() fails with EMFILE."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
def test_a_pod_is_found_on_v2_whatever_driver_named_its_cgroup(tmp_path, path):
    (tmp_path / "cgroup.controllers").touch()
    cgroups = tree(tmp_path, path, cgroup_events="populated 1\nfrozen 0\n")
    assert cgroups.state(UID) is CgroupState.POPULATED
    assert cgroups.state("1f0c-22") is CgroupState.ABSENT


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
def test_a_pod_is_found_on_v1_whatever_driver_named_its_cgroup(tmp_path, path):
    cgroups = tree(tmp_path, f"pids/{path}", pids_current="3\n")
    assert cgroups.state(UID) is CgroupState.POPULATED


def test_a_cgroup_without_processes_is_empty(tmp_path):
    (tmp_path / "cgroup.controllers").touch()
    cgroups = tree(tmp_path, f"kubepods/pod{UID}", cgroup_events="populated 0\n")
    assert cgroups.state(UID) is CgroupState.EMPTY


def test_a_v1_cgroup_without_processes_is_empty(tmp_path):
    assert tree(tmp_path, f"pids/kubepods/pod{UID}", pids_current="0").state(UID) is (
        CgroupState.EMPTY
    )


def test_where_the_kernel_does_not_count_a_cgroup_counts_as_populated(tmp_path):
    assert tree(tmp_path, f"memory/kubepods/pod{UID}").state(UID) is CgroupState.POPULATED


ROOTS = {
    "cgroupfs": ("/odd/k3s", f"odd/k3s/kubepods/besteffort/pod{UID}"),
    "systemd": (
        "/odd/k-3s",
        (
            "odd.slice/odd-k_3s.slice/odd-k_3s-kubepods.slice/"
            "odd-k_3s-kubepods-besteffort.slice/odd-k_3s-kubepods-besteffort-pod1f0c_22_ab.slice"
        ),
    ),
    "a slice by its name": (
        "/odd.slice",
        "odd.slice/odd-kubepods.slice/odd-kubepods-pod1f0c_22_ab.slice",
    ),
}


@pytest.mark.parametrize(("below", "path"), ROOTS.values(), ids=ROOTS.keys())
def test_a_pod_is_found_below_the_cgroup_root_of_its_kubelet(tmp_path, below, path):
    (tmp_path / "cgroup.controllers").touch()
    tree(tmp_path, path, cgroup_events="populated 1\n")
    assert Cgroups(tmp_path, below).state(UID) is CgroupState.POPULATED
    assert Cgroups(tmp_path, below).state("1f0c-22") is CgroupState.ABSENT


def test_a_pod_counts_as_alive_where_the_cgroups_of_pods_are_elsewhere(tmp_path, caplog):
    (tmp_path / "cgroup.controllers").touch()
    cgroups = tree(tmp_path, f"odd/kubepods/pod{UID}", cgroup_events="populated 0\n")
    for uid in (UID, "absent"):
        assert cgroups.state(uid) is CgroupState.POPULATED
    assert "set kubelet.cgroupRoot" in cgroups.problem
    assert caplog.text.count("count as alive") == 1
    (tmp_path / "kubepods").mkdir()
    assert cgroups.state("absent") is CgroupState.ABSENT
    assert cgroups.problem == ""


def test_pods_of_another_kubelet_do_not_count(tmp_path):
    (tmp_path / "cgroup.controllers").touch()
    tree(tmp_path, f"kubepods/pod{UID}", cgroup_events="populated 1\n")
    (tmp_path / "odd/kubepods").mkdir(parents=True)
    assert Cgroups(tmp_path, "/odd").state(UID) is CgroupState.ABSENT


@pytest.mark.parametrize("uid", [UID, "absent"])
def test_a_pod_counts_as_alive_while_its_cgroup_cannot_be_searched(tmp_path, caplog, uid):
    (tmp_path / "cgroup.controllers").touch()
    cgroups = tree(tmp_path, f"kubepods/pod{UID}", cgroup_events="populated 0\n")
    with no_free_file_descriptor():
        assert cgroups.state(uid) is CgroupState.POPULATED
    assert "Too many open files" in caplog.text
    assert cgroups.state(uid) is not CgroupState.POPULATED


@pytest.mark.parametrize("file", ["cgroup.events", "pids.current"])
def test_a_pod_counts_as_alive_while_its_processes_cannot_be_counted(tmp_path, file):
    cgroups = tree(tmp_path, f"pids/kubepods/pod{UID}/{file}")
    assert cgroups.state(UID) is CgroupState.POPULATED


def test_a_loop_of_links_is_no_absence(tmp_path):
    (tmp_path / "kubepods").symlink_to(tmp_path / "kubepods")
    assert Cgroups(tmp_path).state(UID) is CgroupState.POPULATED


@pytest.mark.parametrize("name", [b"x", b"\xff\xfe"])
def test_the_pod_of_a_process_is_found_whatever_bytes_its_container_named_a_cgroup_by(
    tmp_path, name
):
    uid = "1a2b3c4d-0000-4000-8000-000000000001"
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_bytes(f"0::/kubepods/pod{uid}/c/".encode() + name + b"\n")
    assert pod_of(7, tmp_path) == uid
