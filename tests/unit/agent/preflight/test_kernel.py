# SPDX-License-Identifier: Apache-2.0
"""Whether the kernel keeps devices apart."""

import gzip

import pytest

ROW = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ndevices\t5\t29\t{}\n"


@pytest.mark.parametrize(
    ("option", "status"),
    [("CONFIG_CGROUP_BPF=y\n", "ok"), ("# CONFIG_CGROUP_BPF is not set\n", "failure"), ("", "ok")],
)
@pytest.mark.parametrize(
    "place", ["boot/config-6.8.0", "proc/config.gz", "lib/modules/6.8.0/config"]
)
def test_with_version_2_a_kernel_needs_programs_at_cgroups(root, place, option, status):
    text = f"CONFIG_CGROUPS=y\n{option}".encode()
    root.file(place).write_bytes(gzip.compress(text) if place.endswith("gz") else text)
    assert root.found()["cgroups"].status == status


@pytest.mark.parametrize("packed", [b"no gzip", gzip.compress(bytes(8 << 20)), b"\x1f\x8b"])
def test_a_corrupt_packed_kernel_configuration_is_ignored(root, packed):
    root.file("proc/config.gz").write_bytes(packed)
    assert root.found()["cgroups"].status == "ok"


@pytest.mark.parametrize(("enabled", "status"), [(1, "warning"), (0, "failure")])
def test_with_version_1_the_controller_of_devices_must_be_on(root, enabled, status):
    (root.path / "sys/fs/cgroup/cgroup.controllers").unlink()
    root.file("sys/fs/cgroup/memory/tasks")
    root.file("proc/cgroups", ROW.format(enabled))
    assert root.found()["cgroups"].status == status
