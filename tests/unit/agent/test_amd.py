# SPDX-License-Identifier: Apache-2.0
"""AMD's library, by a stand-in with the functions and answers that its documentation gives."""

import io

import pytest

from gpupack_agent.errors import InventoryUnavailable
from gpupack_agent.inventory import amd_prober
from gpupack_agent.inventory.amd import AmdReader
from gpupack_agent.inventory.messages import REPLIES, Found, Reading, Scan, Unavailable, line


class Smi:
    """The module `amdsmi`."""

    class AmdSmiException(Exception):
        pass

    def __init__(self, *gpus, missing=False):
        self.gpus, self.missing, self.begun = gpus, missing, 0

    def amdsmi_init(self):
        self.begun += 1
        if self.missing:
            raise self.AmdSmiException("driver not loaded")

    def amdsmi_get_processor_handles(self):
        return list(self.gpus)

    def amdsmi_get_gpu_asic_info(self, gpu):
        if gpu.get("broken"):
            raise self.AmdSmiException("no answer")
        return {"market_name": gpu["name"], "vendor_id": "0x1002", "asic_serial": "0x1"}

    def amdsmi_get_gpu_vram_info(self, gpu):
        return {"vram_type": "HBM", **gpu["vram"]}

    def amdsmi_get_gpu_device_bdf(self, gpu):
        return gpu["bdf"]

    def amdsmi_topo_get_numa_node_number(self, gpu):
        if "numa" not in gpu:
            raise self.AmdSmiException("not supported")
        return gpu["numa"]


def gpu(number, **changes):
    return {
        "name": "AMD Instinct MI300X OAM ",
        "vram": {"vram_size": 196592},
        "bdf": f"0000:C{number}:00.0",
    } | changes


def test_an_amd_gpu_has_an_address_a_name_and_memory():
    (found,) = AmdReader(Smi(gpu(1, numa=1))).scan().devices
    assert (found.uuid, found.pci_bus_id) == ("0000:c1:00.0", "0000:c1:00.0")
    assert (found.model, found.memory_mib) == ("AMD Instinct MI300X OAM", 196592)
    assert (found.numa_node, found.resource) == (1, "amd.com/gpu")


def test_older_libraries_name_the_memory_otherwise():
    old = gpu(1, vram={"vram_size_mb": 65520})
    assert AmdReader(Smi(old)).scan().devices[0].memory_mib == 65520


@pytest.mark.parametrize("bad", [{"broken": True}, {"vram": {"vram_size": "N/A"}}, {"vram": {}}])
def test_a_gpu_that_does_not_answer_hides_no_other(bad):
    found = AmdReader(Smi(gpu(1, **bad), gpu(2))).scan().devices
    assert [each.index for each in found] == [1]


def test_the_library_is_opened_once():
    smi = Smi(gpu(1))
    reader = AmdReader(smi)
    reader.scan()
    reader.scan()
    assert smi.begun == 1


def test_without_a_driver_there_is_no_inventory():
    with pytest.raises(InventoryUnavailable, match="AMD SMI: driver not loaded"):
        AmdReader(Smi(missing=True)).scan()


def answers(smi):
    output = io.BytesIO()
    amd_prober.serve(smi, io.BytesIO(line(Scan())), output)
    return [REPLIES.decode(each) for each in output.getvalue().splitlines()]


def test_the_process_reports_each_gpu_before_it_queries_it():
    *readings, found = answers(Smi(gpu(1), gpu(2)))
    assert readings == [Reading(None), Reading(0), Reading(1)]
    assert isinstance(found, Found)
    assert len(found.findings.devices) == 2


def test_the_process_replies_with_the_reason_of_a_failure():
    assert answers(Smi(missing=True))[-1] == Unavailable("AMD SMI: driver not loaded")
