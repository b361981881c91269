# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: N802 - the fake carries pynvml's names
import threading

import pynvml
import pytest
from fake_nvml import FakeNvml, gpu, mig_slice

from gpupack import InventoryUnavailable, NotEnoughGpus, TrainingGPUConfig
from gpupack.backend import Patience
from gpupack.host import nvml as reading
from gpupack.host.folder import HostFolder
from gpupack.host.ledger import HostLedger
from gpupack.host.nvml import NvmlGpus
from gpupack_placement import NodeName, policy_named

AT_ONCE = Patience(0, 60)


class Driver(FakeNvml):
    """A loaded driver; its first call may do something else."""

    def __init__(self, *gpus, first=lambda: None):
        super().__init__(*gpus)
        self._first = first

    def nvmlInit(self):
        self._first()


def take(folder, driver, **asked):
    """Return the indices of the GPUs that this process gets."""
    gpus = NvmlGpus(driver)
    ledger = HostLedger(
        HostFolder(folder), gpus, node=NodeName("here"), policy=policy_named("best-fit")
    )
    taken = ledger.acquire(TrainingGPUConfig(**asked), AT_ONCE)
    index = {each.uuid: each.index for each in gpus.read().devices}
    return {index[each.uuid] for each in taken.placement.devices}


def test_gpus_are_read_from_the_driver(folder):
    (found,) = NvmlGpus(Driver(gpu(0))).read().devices
    assert (found.uuid, found.model, found.memory) == ("GPU-0", "NVIDIA H200", 143771)


def test_two_gpus_are_allocated_where_nvlink_connects_them(folder):
    pairs = [gpu(0, island=1), gpu(1, island=2), gpu(2, island=3), gpu(3, island=2)]
    assert take(folder, Driver(*pairs), gpu_count=2) == {1, 3}


def test_a_gpu_used_without_an_allocation_is_not_allocated(folder):
    used = [gpu(0, pids=[4711]), gpu(1)]
    assert take(folder, Driver(*used)) == {1}
    with pytest.raises(NotEnoughGpus, match="GPU 0 is used by process 4711, without an allocation"):
        take(folder, Driver(*used))


def test_a_held_gpu_may_be_used(folder):
    """The holder's children may use it: the driver does not report parents."""
    assert take(folder, Driver(gpu(0)), compute_ratio=0.3, memory_gb=10) == {0}
    assert take(folder, Driver(gpu(0, pids=[4711])), compute_ratio=0.3, memory_gb=10) == {0}


def test_gpus_that_do_not_answer_or_have_mig_are_left_out(folder):
    lost, cut = {"name": "lost"}, gpu(1, mig=1, slices=[mig_slice("MIG-1")])
    assert [each.index for each in NvmlGpus(Driver(lost, cut, gpu(2))).read().devices] == [2]


@pytest.mark.parametrize(
    "error", [pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED]
)
def test_a_machine_without_a_driver_has_no_gpus(error):
    def fail():
        raise pynvml.NVMLError(error)

    inventory = NvmlGpus(Driver(gpu(0), first=fail)).read()
    assert inventory.devices == ()
    assert "there is no NVIDIA driver here" in inventory.missing


def test_a_hanging_driver_is_an_error_after_a_timeout(monkeypatch):
    monkeypatch.setattr(reading, "ANSWER_SECONDS", 0.1)
    hangs = threading.Event()
    with pytest.raises(
        InventoryUnavailable, match=r"has not answered for 0\.1 s; see `nvidia-smi`"
    ):
        NvmlGpus(Driver(gpu(0), first=hangs.wait)).read()
    hangs.set()
