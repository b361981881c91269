# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: N802 - the fake carries pynvml's names
"""NVML is the one thing that is faked here: there is no GPU where unit tests run."""

import io
import threading
import types

import msgspec
import pynvml
import pytest
from fake_nvml import FakeNvml, gpu, mig_slice
from graded import graded

from gpupack_agent.errors import InventoryUnavailable
from gpupack_agent.inventory.driver_root import DriverSearch
from gpupack_agent.inventory.messages import Partition, Scan, line
from gpupack_agent.inventory.mig import profile_name
from gpupack_agent.inventory.nvml import NvmlReader, open_nvml
from gpupack_agent.inventory.prober import Prober
from gpupack_agent.inventory.xids import XidWatcher


def inventory(tmp_path, *gpus, notify=lambda: None):
    nvml = FakeNvml(*gpus)
    return nvml, NvmlReader(nvml, XidWatcher(nvml, notify=notify), host_root=tmp_path)


def test_every_name_that_the_fake_has_is_pynvmls_own():
    names = {name for name in vars(FakeNvml) if name.lower().startswith("nvml")}
    assert len(names) > 20
    assert not [name for name in names if not hasattr(pynvml, name)]


def test_a_scan_reports_the_drivers_facts(tmp_path):
    numa = tmp_path / "sys/bus/pci/devices/0000:1b:00.0/numa_node"
    numa.parent.mkdir(parents=True)
    numa.write_text("1\n")
    _, nvml = inventory(tmp_path, gpu(0, bus="00000000:1B:00.0", action=0))
    found = nvml.scan()
    (one,) = found.devices
    assert (one.uuid, one.model, one.memory_mib, one.numa_node) == (
        "GPU-0",
        "NVIDIA H200",
        143771,
        1,
    )
    assert (found.driver_version, found.cuda_version) == ("580.95.05", "13.1")
    assert not one.simulated


def test_a_scan_reports_which_gpus_were_busy(tmp_path):
    sample = types.SimpleNamespace
    ran = [sample(timeStamp=1, sampleValue=sample(uiVal=3))]
    rested = [sample(timeStamp=1, sampleValue=sample(uiVal=0))]
    gpus = gpu(0, samples=ran), gpu(1, samples=rested), gpu(2)
    found = inventory(tmp_path, *gpus)[1].scan()
    assert found.busy == {"GPU-0": True, "GPU-1": False}


class OldNvml(FakeNvml):
    """A driver that lacks the newest version of a function."""

    def nvmlInit(self):
        pass

    def nvmlSystemGetDriverVersion(self):
        return "470.57.02"

    def nvmlDeviceGetComputeRunningProcesses(self, _):
        raise pynvml.NVMLLibraryMismatchError("Unversioned function called")

    def nvmlDeviceGetHandleByUUID(self, _):
        raise pynvml.NVMLLibraryMismatchError("Unversioned function called")


@pytest.mark.parametrize("request_", [Scan(), Partition("GPU-0", ())], ids=["scan", "cut"])
def test_a_driver_that_is_too_old_is_named_and_does_not_end_the_prober(tmp_path, request_):
    output = io.BytesIO()
    prober = Prober(OldNvml(gpu(0)), DriverSearch(tmp_path), output)
    prober.serve(io.BytesIO(line(request_) * 2))
    lines = output.getvalue().splitlines()
    replies = [each for each in map(msgspec.json.decode, lines) if each["type"] == "Unavailable"]
    assert len(replies) == 2
    assert "470.57.02" in replies[-1]["message"]
    assert "install a newer driver" in replies[-1]["message"]


def test_a_gpu_that_fell_off_the_bus_hides_no_other(tmp_path):
    _, nvml = inventory(tmp_path, gpu(0), {}, gpu(2))
    assert [each.index for each in nvml.scan().devices] == [0, 2]


def test_a_gpu_that_answers_in_part_counts_as_one_that_did_not(tmp_path):
    """Otherwise it would be forgotten like former slices, and its jobs would continue."""
    lost = {key: value for key, value in gpu(0).items() if key != "mib"}
    _, nvml = inventory(tmp_path, lost, gpu(1))
    found = nvml.scan()
    assert [each.uuid for each in found.devices] == ["GPU-1"]
    assert [each.uuid for each in found.facts] == ["GPU-1"]


def test_a_recovery_action_makes_a_gpu_failed(tmp_path):
    _, nvml = inventory(tmp_path, gpu(0, action=2))
    assert graded(nvml.scan())[0].health == "Failed"


def test_gpus_of_one_island_share_a_clique(tmp_path):
    gpus = [gpu(index, island=index // 2) for index in range(4)]
    _, nvml = inventory(tmp_path, *gpus)
    assert [each.nvlink_clique for each in nvml.scan().devices] == [0, 0, 2, 2]


def test_a_partitioned_gpu_is_listed_as_its_slices(tmp_path):
    slices = [mig_slice("MIG-1", gi=9, at=(6, 1))]
    _, nvml = inventory(tmp_path, gpu(0, mig=1, slices=slices, minor=4))
    found = nvml.scan()
    (one,) = found.devices
    assert (one.uuid, one.mig_parent, one.memory_mib) == ("MIG-1", "GPU-0", 16384)
    assert (one.mig_profile, one.mig_start, one.mig_size) == ("1g.18gb", 6, 1)
    assert (found.minors["MIG-1"], found.instances["MIG-1"]) == (4, (9, 0))
    (of_slice,) = found.facts[0].slices
    assert (of_slice.uuid, of_slice.profile, of_slice.instance) == ("MIG-1", "1g.18gb", 9)
    assert of_slice.load.memory_total_bytes == 16384 * 2**20


def test_a_profile_is_called_as_the_driver_calls_it(tmp_path):
    slices = [mig_slice("MIG-1", profile=20)]
    profiles = {0: (19, "1g.18gb"), 7: (20, "1g.18gb+me")}
    _, nvml = inventory(tmp_path, gpu(0, mig=1, slices=slices, profiles=profiles))
    assert [each.mig_profile for each in nvml.scan().devices] == ["1g.18gb+me"]


def test_a_compute_instance_that_is_a_part_is_not_called_like_the_whole(tmp_path):
    slices = [mig_slice("MIG-1", compute=(3, 1), mib=71000)]
    _, nvml = inventory(tmp_path, gpu(0, mig=1, slices=slices))
    assert [each.mig_profile for each in nvml.scan().devices] == ["1c.3g.71gb"]


def test_a_gpu_in_mig_mode_without_slices_is_not_handed_out(tmp_path):
    _, nvml = inventory(tmp_path, gpu(0, mig=1, slices=[]))
    assert nvml.scan().devices == ()


@pytest.mark.parametrize("call", ["nvmlDeviceGetMigMode", "nvmlDeviceGetMigDeviceHandleByIndex"])
def test_a_gpu_whose_slices_cannot_be_listed_is_not_reported(tmp_path, monkeypatch, call):
    def refuse(*_):
        raise nvml.NVMLError("GPU is lost")

    nvml, reader = inventory(tmp_path, gpu(0, mig=1, slices=[mig_slice("MIG-1")]))
    monkeypatch.setattr(nvml, call, refuse)
    found = reader.scan()
    assert (found.devices, found.facts) == ((), ())


@pytest.mark.parametrize(
    ("total", "compute", "memory", "name"),
    [
        (40536, 1, 4864, "1g.5gb"),
        (40536, 3, 20096, "3g.20gb"),
        (81559, 1, 9984, "1g.10gb"),
        (81559, 1, 20096, "1g.20gb"),
        (81559, 7, 80896, "7g.80gb"),
        (143771, 1, 16384, "1g.18gb"),
        (143771, 2, 33280, "2g.35gb"),
        (143771, 3, 71000, "3g.71gb"),
    ],
)
def test_a_profile_without_a_name_is_called_by_its_size(total, compute, memory, name):
    assert profile_name(compute, memory, total * 2**20) == name


def test_a_gpu_without_a_minor_number_has_no_device_node(tmp_path):
    _, nvml = inventory(tmp_path, gpu(0, minor=4), {"uuid": "GPU-1", "name": "H200", "mib": 1})
    assert nvml.scan().minors == {"GPU-0": 4}


def test_skipped_gpus_are_not_queried(tmp_path):
    _, nvml = inventory(tmp_path, gpu(0), gpu(1), gpu(2))
    assert [each.index for each in nvml.scan(skip=(1,)).devices] == [0, 2]


def test_a_driver_without_events_is_scanned_all_the_same(tmp_path):
    class NoEvents(FakeNvml):
        def nvmlEventSetCreate(self):
            raise self.NVMLError("Not Supported")

    fake = NoEvents(gpu(0))
    nvml = NvmlReader(fake, XidWatcher(fake, notify=lambda: None), host_root=tmp_path)
    assert len(nvml.scan().devices) == 1


def test_a_gpu_that_reappears_is_registered_for_events_again(tmp_path):
    fake, nvml = inventory(tmp_path, gpu(0, events=8))
    nvml.scan()
    back = fake.gpus
    del back[0]["mask"]
    for seen in (({},), back):
        fake.gpus = seen
        nvml.scan()
    assert back[0]["mask"] == 8


def test_an_xid_fails_the_gpu_until_past_errors_are_forgotten(tmp_path):
    notified = threading.Event()
    fake, nvml = inventory(tmp_path, gpu(0, events=8), notify=notified.set)
    nvml.scan()
    fake.events.put(types.SimpleNamespace(eventType=8, eventData=79, device=fake.gpus[0]))
    assert notified.wait(30)
    (device,) = graded(nvml.scan())
    assert "XID 79" in device.cause
    assert (device.health, device.xids) == ("Failed", (79,))
    assert fake.gpus[0]["mask"] == 8
    nvml._xids.forget()
    assert graded(nvml.scan())[0].health == "Healthy"


def test_a_missing_driver_is_an_error_with_instructions(tmp_path):
    class NoDriver(FakeNvml):
        def nvmlInit(self):
            raise self.NVMLError("Driver Not Loaded")

    with pytest.raises(InventoryUnavailable, match=r"set agent\.driverRoot") as raised:
        open_nvml(NoDriver(), DriverSearch(tmp_path))
    assert raised.value.reason == "DriverNotFound"
