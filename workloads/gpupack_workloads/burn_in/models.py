# SPDX-License-Identifier: Apache-2.0
"""Minimum speeds of GPUs by the driver's name: measured, else from their data sheet.

A data sheet's figure is a ceiling that no product or copy reaches, least of all on boards of little
power. The parts of it below let every healthy board pass that we know figures of, and none that
runs at half of what such boards reach:

    H200: 622 of 989 TFLOP/s with checksums, 4,296 of 4,800 GB/s

Copies to and from the host depend on the slot (its generation, its lanes) as much as on the board:
they are held to what was measured, or to peers.
"""

from dataclasses import dataclass

COMPUTE_PART = 0.5
COMPUTE_PART_OF_LOW_POWER = 0.3
"""Of boards of up to LOW_POWER_WATTS, which slow down under any product that lasts."""
LOW_POWER_WATTS = 150
MEMORY_PART = 0.6


@dataclass(frozen=True)
class DataSheet:
    """NVIDIA's figures of one board.

    Attributes:
        tflops: TFLOP/s of dense 16-bit products by tensor cores that add in 32 bits.
        memory_gb_per_s: GB/s of the GPU's own memory.
        watts: the power that it may draw.
    """

    tflops: float
    memory_gb_per_s: float
    watts: int

    def limits(self) -> dict[str, float]:
        """Return the least that is healthy, by the names of the limits."""
        low_power = self.watts <= LOW_POWER_WATTS
        compute = COMPUTE_PART_OF_LOW_POWER if low_power else COMPUTE_PART
        return {
            "min_gemm_tflops": round(compute * self.tflops, 1),
            "min_device_copy_gb_per_s": round(MEMORY_PART * self.memory_gb_per_s, 1),
        }


# Four fifths of what was measured on healthy ones (docs/reports/workloads).
MEASURED: dict[str, dict[str, float]] = {
    "NVIDIA H200": {
        "min_gemm_tflops": 475,
        "min_device_copy_gb_per_s": 3400,
        "min_host_to_device_gb_per_s": 44,
        "min_device_to_host_gb_per_s": 44,
    }
}

# Figures without sparsity, from the data sheets of the boards.
DATA_SHEETS: dict[str, DataSheet] = {
    "Tesla V100-PCIE-16GB": DataSheet(112, 900, 250),
    "Tesla V100-PCIE-32GB": DataSheet(112, 900, 250),
    "Tesla V100-SXM2-16GB": DataSheet(125, 900, 300),
    "Tesla V100-SXM2-32GB": DataSheet(125, 900, 300),
    "Tesla T4": DataSheet(65, 300, 70),
    "NVIDIA A10": DataSheet(125, 600, 150),
    "NVIDIA A30": DataSheet(165, 933, 165),
    "NVIDIA A40": DataSheet(149.7, 696, 300),
    "NVIDIA A100-PCIE-40GB": DataSheet(312, 1555, 250),
    "NVIDIA A100 80GB PCIe": DataSheet(312, 1935, 300),
    "NVIDIA A100-SXM4-40GB": DataSheet(312, 1555, 400),
    "NVIDIA A100-SXM4-80GB": DataSheet(312, 2039, 400),
    "NVIDIA L4": DataSheet(121, 300, 72),
    "NVIDIA L40": DataSheet(181, 864, 300),
    "NVIDIA L40S": DataSheet(362, 864, 350),
    "NVIDIA H100 PCIe": DataSheet(756, 2000, 350),
    "NVIDIA H100 80GB HBM3": DataSheet(989, 3350, 700),
    "NVIDIA H100 NVL": DataSheet(835, 3900, 400),
    "NVIDIA H20": DataSheet(148, 4000, 400),
    "NVIDIA H200": DataSheet(989, 4800, 700),
    "NVIDIA H200 NVL": DataSheet(835, 4800, 600),
    "NVIDIA GH200 480GB": DataSheet(990, 4000, 900),
    "NVIDIA B200": DataSheet(2250, 7700, 1000),
}
