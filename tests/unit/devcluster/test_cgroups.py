# SPDX-License-Identifier: Apache-2.0
"""Control groups: mounts of the host, and the commands that follow."""

from pathlib import Path

import pytest

from gpupack_devcluster import cgroups
from gpupack_devcluster.cgroups import CgroupsV1, CgroupsV2, host_cgroups, v1_hierarchies

ROOT = Path("/sys/fs/cgroup")
MOUNTS = """\
tmpfs /sys/fs/cgroup tmpfs rw,mode=755 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,nosuid,nodev,noexec,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,xattr,release_agent=/x,name=systemd 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0
cgroup /elsewhere/cpu cgroup rw,cpu 0 0
"""


def test_hierarchies_are_mounted_again_with_the_controllers_or_the_name_of_the_host():
    assert v1_hierarchies(MOUNTS, ROOT) == {
        ROOT / "cpu,cpuacct": "cpu,cpuacct",
        ROOT / "systemd": "none,name=systemd",
    }


def test_a_v1_node_joins_every_hierarchy():
    assert CgroupsV1(ROOT, mounts=MOUNTS).join("gpupack-1") == (
        "echo $$ > /sys/fs/cgroup/cpu,cpuacct/gpupack-1/cgroup.procs\n"
        "echo $$ > /sys/fs/cgroup/systemd/gpupack-1/cgroup.procs\n"
    )


def test_a_new_v1_cpuset_gets_the_cpus_of_its_parent(tmp_path):
    parent, group = tmp_path / "cpuset", tmp_path / "cpuset" / "gpupack-1"
    group.mkdir(parents=True)
    for folder, cpus in ((parent, "0-1"), (group, "")):
        (folder / "cpuset.cpus").write_text(cpus)
        (folder / "cpuset.mems").write_text("0")
    mounts = f"cgroup {parent} cgroup rw,cpuset 0 0"
    CgroupsV1(tmp_path, mounts=mounts).create("gpupack-1")
    assert (group / "cpuset.cpus").read_text() == "0-1"
    assert (group / "cgroup.clone_children").read_text() == "1"


def test_a_v2_node_gets_every_controller_and_its_daemons_live_in_a_leaf(tmp_path):
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    groups = CgroupsV2(tmp_path)
    groups.create("gpupack-1")
    node = tmp_path / "gpupack-1"
    (node / "cgroup.controllers").write_text("cpu memory\n")
    (node / "cgroup.procs").write_text("41\n")
    groups.settle("gpupack-1")
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu +memory"
    assert (node / "daemons" / "cgroup.procs").read_text() == "41"
    assert groups.join_daemons("gpupack-1") == f"echo $$ > {node}/daemons/cgroup.procs\n"


@pytest.mark.parametrize(("file", "kind"), [("cgroup.controllers", CgroupsV2), ("cpu", CgroupsV1)])
def test_the_version_is_detected_by_the_files_at_the_root(tmp_path, file, kind):
    (tmp_path / file).touch()
    assert isinstance(host_cgroups(tmp_path), kind)


def test_groups_are_removed_with_their_children(tmp_path):
    (tmp_path / "gpupack-1" / "kubepods" / "pod1").mkdir(parents=True)
    cgroups.remove([tmp_path / "gpupack-1", tmp_path / "absent"])
    assert list(tmp_path.iterdir()) == []
