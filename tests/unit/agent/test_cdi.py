# SPDX-License-Identifier: Apache-2.0
import json
import os

import msgspec
import pytest

from gpupack_agent.cdi import SpecFolder, parse_record, render_spec
from gpupack_agent.errors import CdiUnwritable
from gpupack_agent.inventory.base import Injection, Mount
from gpupack_agent.mps.folder import MpsFolder
from gpupack_agent.mps.injection import with_limits


def test_a_containers_variables_name_its_devices(build):
    record = build.record("a", build.share(0), build.share(1), tokens=["gpu-4", "gpu-5"])
    (device,) = render_spec(record, Injection(), simulated=True)["devices"]
    assert device["containerEdits"] == {
        "env": [
            "GPUPACK_DEVICES=GPU-0,GPU-1",
            "GPUPACK_DEVICE_PERCENT=100",
            "GPUPACK_DEVICE_MEMORY_MIB=1000",
            "GPUPACK_DEVICE_ISOLATION=exclusive",
            "GPUPACK_SIMULATED=true",
            "NVIDIA_VISIBLE_DEVICES=void",
        ]
    }


def test_a_real_device_comes_with_its_nodes_and_libraries(build):
    injection = Injection(device_nodes=("/dev/nvidia3",), mounts=(Mount("/lib/a", "/lib/b"),))
    edits = render_spec(build.record(), injection, simulated=False)["devices"][0]["containerEdits"]
    assert edits["deviceNodes"] == [{"path": "/dev/nvidia3", "permissions": "rw"}]
    assert edits["mounts"][0]["containerPath"] == "/lib/b"
    assert "ro" in edits["mounts"][0]["options"]
    assert "GPUPACK_SIMULATED=false" in edits["env"]


def test_variables_name_the_drivers_folder_and_no_other_devices(build):
    injection = Injection(environment={"DRIVER_FOLDER": "/lib", "GPUPACK_DEVICES": "forged"})
    edits = render_spec(build.record(), injection, simulated=False)["devices"][0]["containerEdits"]
    assert "DRIVER_FOLDER=/lib" in edits["env"]
    assert "GPUPACK_DEVICES=forged" not in edits["env"]


def test_a_new_agent_reads_the_recorded_devices_of_each_container(build, tmp_path):
    record = build.record("a", build.share(0, 40, 100), tokens=["gpu-1", "gpu-0"])
    SpecFolder(tmp_path).write(record, Injection(), simulated=True)
    later = SpecFolder(tmp_path)
    later.load()
    assert later.records == (record,)


def test_the_runtime_sees_whole_files_only(build, tmp_path):
    SpecFolder(tmp_path / "cdi").write(build.record(), Injection(), simulated=True)
    (path,) = (tmp_path / "cdi").iterdir()
    spec = json.loads(path.read_text())
    assert path.suffix == ".json"
    assert f"{spec['kind']}={spec['devices'][0]['name']}" == build.record().cdi_name


def test_the_spec_of_a_dead_pod_can_be_removed(build, tmp_path):
    folder = SpecFolder(tmp_path)
    folder.write(build.record(), Injection(), simulated=True)
    folder.remove(build.record())
    assert (list(tmp_path.iterdir()), folder.records) == ([], ())


def test_an_unwritable_folder_is_a_clear_error_and_gives_nothing(build, tmp_path):
    (tmp_path / "cdi").touch()
    folder = SpecFolder(tmp_path / "cdi")
    with pytest.raises(CdiUnwritable, match="cannot write CDI spec"):
        folder.write(build.record(), Injection(), simulated=True)
    assert folder.records == ()


def test_a_full_disk_leaves_the_old_spec_whole(build, tmp_path, monkeypatch):
    folder = SpecFolder(tmp_path)
    folder.write(build.record("a"), Injection(), simulated=True)

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CdiUnwritable, match="No space left"):
        folder.write(build.record("b"), Injection(), simulated=True)
    (path,) = tmp_path.iterdir()
    assert parse_record(path.read_bytes()) == build.record("a")
    assert folder.records == (build.record("a"),)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"annotations": {"gpupack.dev/record": "x"}}'])
def test_a_foreign_or_garbled_file_is_ignored(tmp_path, text):
    path = tmp_path / "gpupack.dev-alloc-0.json"
    path.write_text(text)
    folder = SpecFolder(tmp_path)
    folder.load()
    assert folder.records == ()
    assert path.read_text() == text


def test_a_limited_shares_variables_name_what_limits_it(build):
    share = msgspec.structs.replace(build.share(0, 40, 100), isolation="limited")
    for simulated, limits in ((True, "Simulated"), (False, "MPS")):
        (device,) = render_spec(build.record("a", share), Injection(), simulated=simulated)[
            "devices"
        ]
        env = device["containerEdits"]["env"]
        assert {"GPUPACK_DEVICE_ISOLATION=limited", f"GPUPACK_DEVICE_LIMITS={limits}"} <= set(env)


def test_a_limited_share_gets_its_limits_and_of_the_daemon_one_socket(build):
    share = msgspec.structs.replace(build.share(0, 40, 100), isolation="limited")
    injection = Injection(device_nodes=("/dev/nvidia0",), environment={"A": "a"})
    made = with_limits(injection, share, MpsFolder(), 27)
    assert made.device_nodes == ("/dev/nvidia0",)
    assert [(each.host_path, each.container_path) for each in made.mounts] == [
        ("/run/gpupack/mps/gpus/GPU-0/control", "/run/gpupack/mps/control")
    ]
    assert made.environment == {
        "A": "a",
        "CUDA_MPS_PIPE_DIRECTORY": "/run/gpupack/mps",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "27",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=100M",
    }
