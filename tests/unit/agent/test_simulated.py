# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest

from gpupack_agent.errors import InventoryUnavailable
from gpupack_agent.inventory.layout import Place, Profile
from gpupack_agent.inventory.simulated import SimulatedInventory, simulated_uuid

FILE = """
nodes:
- match: "gpu-*"
  devices:
  - {model: NVIDIA H200, memoryMiB: 143771, count: 2, nvlinkClique: 0, numaNode: 1}
  - {model: NVIDIA A100, memoryMiB: 81920, health: Failed, cause: a test}
- match: "*"
  devices: []
"""


def simulated(tmp_path, path, node):
    return SimulatedInventory(path, node=node, scan_seconds=1, layouts=tmp_path / "cuts.json")


def scan(tmp_path, node, text=FILE):
    path = tmp_path / "simulated.yaml"
    path.write_text(text)
    return asyncio.run(simulated(tmp_path, path, node).scan()).devices


def test_a_node_gets_the_gpus_of_the_first_entry_that_fits_its_name(tmp_path):
    devices = scan(tmp_path, "gpu-7")
    assert [each.model for each in devices] == ["NVIDIA H200", "NVIDIA H200", "NVIDIA A100"]
    assert [each.index for each in devices] == [0, 1, 2]
    assert (devices[0].memory_mib, devices[0].nvlink_clique, devices[0].numa_node) == (143771, 0, 1)
    assert (devices[2].health, devices[2].cause) == ("Failed", "a test")


def test_every_simulated_gpu_is_marked_simulated(tmp_path):
    assert all(each.simulated for each in scan(tmp_path, "gpu-7"))
    assert {each.limits for each in scan(tmp_path, "gpu-7")} == {"Simulated"}


def test_a_node_that_only_the_catch_all_fits_has_no_gpus(tmp_path):
    assert scan(tmp_path, "cpu-1") == ()


def test_uuids_are_the_same_at_each_start_and_differ_between_nodes_of_long_names():
    long = "node-" + "x" * 200
    assert simulated_uuid(long, 3) == simulated_uuid(long, 3)
    assert simulated_uuid(long, 3) != simulated_uuid(long + "y", 3)
    assert len(simulated_uuid(long, 127)) <= 63


@pytest.mark.parametrize("text", ["nodes: 3", "nodes: [{match: a, devices: [{modle: x}]}]", "{"])
def test_a_wrong_file_is_an_error_that_names_it(tmp_path, text):
    with pytest.raises(InventoryUnavailable, match=r"simulated\.yaml"):
        scan(tmp_path, "gpu-7", text)


def test_a_missing_file_is_an_error_that_names_it(tmp_path):
    with pytest.raises(InventoryUnavailable, match="nothing-here"):
        asyncio.run(simulated(tmp_path, tmp_path / "nothing-here", "a").scan())


CUT = """
nodes:
- match: "*"
  devices:
  - {model: NVIDIA H200, memoryMiB: 143771, mig: [%s]}
"""


def test_a_gpu_can_be_partitioned_at_nvidias_places(tmp_path):
    devices = scan(tmp_path, "gpu-7", CUT % "1g.18gb, 3g.71gb, 1g.18gb")
    assert [(each.mig_profile, each.mig_start, each.mig_size) for each in devices] == [
        ("1g.18gb", 0, 1),
        ("3g.71gb", 4, 4),
        ("1g.18gb", 1, 1),
    ]
    assert {each.mig_parent for each in devices} == {simulated_uuid("gpu-7", 0)}
    assert [each.memory_mib for each in devices] == [17971, 71885, 17971]
    assert all(each.simulated and len(each.uuid) < 64 for each in devices)


def test_an_impossible_layout_in_the_file_is_an_error(tmp_path):
    with pytest.raises(InventoryUnavailable, match="no slot is left for MIG profile"):
        scan(tmp_path, "gpu-7", CUT % "4g.71gb, 3g.71gb, 3g.71gb")
    with pytest.raises(InventoryUnavailable, match="has no MIG profile '1g"):
        scan(tmp_path, "gpu-7", CUT % "1g.5gb")


THIRDS = [Place("3g.71gb", 4, 4), Place("1g.18gb", 0, 1)]


def cut(tmp_path, uuid, places):
    asyncio.run(simulated(tmp_path, tmp_path / "simulated.yaml", "gpu-7").partition(uuid, places))


def test_a_changed_simulated_layout_survives_an_agent_restart(tmp_path):
    before = scan(tmp_path, "gpu-7", CUT % "1g.18gb")
    cut(tmp_path, before[0].mig_parent, THIRDS)
    after = scan(tmp_path, "gpu-7", CUT % "1g.18gb")
    assert [(each.mig_profile, each.mig_start) for each in after] == [
        ("3g.71gb", 4),
        ("1g.18gb", 0),
    ]
    assert not {each.uuid for each in before} & {each.uuid for each in after}
    assert all(len(each.uuid) < 64 for each in after)


def test_each_layout_change_gives_slices_other_uuids(tmp_path):
    (before,) = scan(tmp_path, "gpu-7", CUT % "1g.18gb")
    seen = set()
    for _ in range(101):
        cut(tmp_path, before.mig_parent, THIRDS)
        seen |= {each.uuid for each in scan(tmp_path, "gpu-7", CUT % "1g.18gb")}
    assert len(seen) == 202
    assert all(len(uuid) < 64 for uuid in seen)


def test_a_new_layout_in_the_file_overrides_an_earlier_change(tmp_path):
    (before,) = scan(tmp_path, "gpu-7", CUT % "1g.18gb")
    cut(tmp_path, before.mig_parent, THIRDS)
    assert [each.mig_profile for each in scan(tmp_path, "gpu-7", CUT % "7g.141gb")] == ["7g.141gb"]


def test_a_void_layout_change_does_not_return_with_the_layout_of_the_file(tmp_path):
    (before,) = scan(tmp_path, "gpu-7", CUT % "1g.18gb")
    cut(tmp_path, before.mig_parent, THIRDS)
    scan(tmp_path, "gpu-7")
    assert [each.mig_profile for each in scan(tmp_path, "gpu-7", CUT % "1g.18gb")] == ["1g.18gb"]


def test_a_simulated_gpu_without_mig_mode_is_not_partitioned(tmp_path):
    scan(tmp_path, "gpu-7")
    with pytest.raises(InventoryUnavailable, match="no simulated GPU in MIG mode"):
        cut(tmp_path, simulated_uuid("gpu-7", 0), THIRDS)


def test_a_simulated_gpu_in_mig_mode_lists_its_profiles(tmp_path):
    path = tmp_path / "simulated.yaml"
    path.write_text(CUT % "1g.18gb")
    (found,) = asyncio.run(simulated(tmp_path, path, "gpu-7").scan()).mig_gpus
    assert found.uuid == simulated_uuid("gpu-7", 0)
    assert found.profiles["3g.71gb"] == Profile(number=4, size=4, starts=(0, 4), max_count=8)
