# SPDX-License-Identifier: Apache-2.0
"""The device-query workload: what torch, the driver and NVML tell, and what if they disagree."""

import enum
import sys
import types

import pytest
import torch

from gpupack_workloads.device_query import run, session
from gpupack_workloads.devices import Device
from gpupack_workloads.errors import WrongResult
from gpupack_workloads.results import encode
from gpupack_workloads.settings import Options

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

UUID = "01234567-89ab-cdef-0123-456789abcdef"
MEMORY = 80 * 2**30


class Status(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1


class Attribute(enum.IntEnum):
    CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16
    CU_DEVICE_ATTRIBUTE_ECC_ENABLED = 32
    CU_DEVICE_ATTRIBUTE_PCI_BUS_ID = 33
    CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID = 34
    CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID = 50
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76
    CU_DEVICE_ATTRIBUTE_MAX = 162


VALUES = dict(zip(Attribute, (32, 132, 1, 27, 0, 0, 9, 0), strict=False))


def driver(**other):
    """A driver with two GPUs, of which the second reaches the first, and not the other way."""

    def attribute(which, device):
        known = which in VALUES
        return (Status.CUDA_SUCCESS, VALUES[which]) if known else (Status(1), 0)

    return types.SimpleNamespace(
        CUdevice_attribute=Attribute,
        CUdevice_P2PAttribute=types.SimpleNamespace(
            CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED=3
        ),
        **{
            "cuInit": lambda flags: (Status.CUDA_SUCCESS,),
            "cuDriverGetVersion": lambda: (Status.CUDA_SUCCESS, 13020),
            "cuDeviceGet": lambda index: (Status.CUDA_SUCCESS, index),
            "cuDeviceGetAttribute": attribute,
            "cuDeviceGetName": lambda size, device: (Status.CUDA_SUCCESS, b"NVIDIA H100\0\0\0"),
            "cuDeviceTotalMem": lambda device: (Status.CUDA_SUCCESS, MEMORY),
            "cuDeviceCanAccessPeer": lambda reader, owner: (Status.CUDA_SUCCESS, reader > owner),
            "cuDeviceGetP2PAttribute": lambda kind, reader, owner: (Status.CUDA_SUCCESS, 0),
        }
        | other,
    )


class NvmlError(Exception):
    pass


def nvml(**other):
    def handle(uuid):
        if uuid != f"GPU-{UUID}":
            raise NvmlError
        return "handle"

    place = types.SimpleNamespace(domain=0, bus=27, device=0)
    return types.SimpleNamespace(
        **{
            "NVMLError": NvmlError,
            "nvmlInit": lambda: None,
            "nvmlSystemGetDriverVersion": lambda: "580.159.04",
            "nvmlDeviceGetHandleByUUID": handle,
            "nvmlDeviceGetPciInfo": lambda handle: place,
            "nvmlDeviceGetName": lambda handle: b"NVIDIA H100",
            "nvmlDeviceGetCudaComputeCapability": lambda handle: (9, 0),
            "nvmlDeviceGetEccMode": lambda handle: [1, 1],
        }
        | other,
    )


@pytest.fixture
def survey(monkeypatch):
    """Return a function that queries two GPUs with the given facts."""

    def survey(*, by_driver=None, by_nvml=None, uuid=UUID):
        properties = types.SimpleNamespace(
            name="NVIDIA H100", uuid=uuid, major=9, minor=0, total_memory=MEMORY,
            multi_processor_count=132, L2_cache_size=50 * 2**20, warp_size=32,
            shared_memory_per_block_optin=227 * 1024, regs_per_multiprocessor=65536,
            max_threads_per_multi_processor=2048,
        )  # fmt: skip
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
        monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda one, other: one > other)
        monkeypatch.setattr(session, "load", lambda name: by_driver or driver())
        monkeypatch.setitem(sys.modules, "pynvml", by_nvml or nvml())
        return session.survey(Device(torch.device("cuda", 0), "NVIDIA H100"))

    return survey


def test_what_all_tell_is_one_row_a_gpu_with_every_attribute_that_the_driver_knows(survey):
    result = survey()
    assert result.headline == "2 GPU(s), compute capability 9.0"
    assert [row["peers"] for row in result.rows] == ["", "0"]
    row = result.rows[0]
    assert (row["pci_address"], row["ecc"], row["ecc_enabled"]) == ("0000:1b:00.0", True, 1)
    assert "max" not in row
    versions = [result.metrics[f"{name}_version"] for name in ("driver", "driver_cuda")]
    assert versions == ["580.159.04", "13.2"]
    assert (result.metrics["peer_pairs"], result.metrics["name"]) == (1, "NVIDIA H100")
    assert len(encode(result)) < 2000


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"by_driver": driver(cuDeviceTotalMem=lambda device: (Status(0), 2**30))},
         "device 0: memory_mib is 81920 by torch, 1024 by the driver"),
        ({"by_driver": driver(cuDeviceCanAccessPeer=lambda one, other: (Status(0), 1))},
         "peers is  by torch, 1 by the driver"),
        ({"by_nvml": nvml(nvmlDeviceGetName=lambda handle: "NVIDIA H200")},
         "NVIDIA H100 by the driver, NVIDIA H200 by NVML"),
        ({"by_nvml": nvml(nvmlDeviceGetEccMode=lambda handle: [0, 1])},
         "ecc is True by the driver, False by NVML"),
    ],
)  # fmt: skip
def test_a_contradiction_is_a_wrong_result_that_names_sources_and_values(survey, how, message):
    with pytest.raises(WrongResult, match=message):
        survey(**how)


def test_facts_of_a_slice_or_with_a_failing_nvml_come_from_the_other_sources(survey):
    assert survey(uuid="another").verified

    def fails():
        raise NvmlError

    assert survey(by_nvml=nvml(nvmlInit=fails)).metrics["driver_version"] == "unknown"


@no_gpu
def test_without_a_gpu_the_cpu_is_described_and_the_result_says_simulated():
    result = run(Options())
    assert (result.headline, result.simulated) == ("1 device (simulated)", True)
    assert result.rows[0]["multiprocessors"] >= 1


@no_gpu
def test_a_kernel_that_counts_other_cpus_is_a_wrong_result(monkeypatch):
    monkeypatch.setattr(session, "kernel_facts", lambda: {"multiprocessors": 10**6})
    with pytest.raises(WrongResult, match="by Python, 1000000 by the kernel"):
        run(Options())


@pytest.mark.gpu
@needs_gpu
def test_torch_the_driver_and_nvml_agree_about_every_gpu():
    result = run(Options(require_gpu=True))
    assert (result.verified, len(result.rows)) == (True, torch.cuda.device_count())
    assert result.metrics["facts_compared"] >= 8 * len(result.rows)
    row = result.rows[0]
    assert row["multiprocessors"] == row["multiprocessor_count"] > 0
    assert len(row) > 100
    assert result.metrics["driver_version"] != "unknown"
