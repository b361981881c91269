# SPDX-License-Identifier: Apache-2.0
"""Peak TFLOP/s of dense products from data sheets."""

BF16_TFLOPS = {
    "H200": 989.5,
    "H100 PCIe": 756.0,
    "H100": 989.5,
    "A100": 312.0,
    "B200": 2250.0,
    "L40S": 362.0,
}


def bf16_peak_tflops(device_name: str) -> float | None:
    """Return a device's peak, or nothing where it is not known here."""
    return next((peak for name, peak in BF16_TFLOPS.items() if name in device_name), None)
