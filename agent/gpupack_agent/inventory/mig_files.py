# SPDX-License-Identifier: Apache-2.0
"""The device nodes with which the driver lets a process use one MIG slice.

A process that may open the GPU's own node needs two more for a slice: one for the GPU instance and
one for the compute instance in it. Files of the driver show their minor numbers:

    /proc/driver/nvidia/capabilities/gpu0/mig/gi1/access         DeviceFileMinor: 12
    /proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access     DeviceFileMinor: 13

and the nodes are /dev/nvidia-caps/nvidia-cap12 and -cap13 (NVIDIA's MIG User Guide, «Device Nodes
and Capabilities»).
"""

import pathlib
import re

from gpupack_agent.errors import InventoryUnavailable
from gpupack_agent.inventory.driver_root import HostDriver

CAPABILITIES = "proc/driver/nvidia/capabilities"

_MINOR = re.compile(r"^DeviceFileMinor:\s*([0-9]+)\s*$", re.MULTILINE)


def capabilities(driver: HostDriver, minor: int, gpu: int, compute: int) -> tuple[str, ...]:
    """Return the device nodes of a slice, as names below /dev.

    Args:
        driver: the host's driver.
        minor: minor number of its GPU's device node.
        gpu: number of its GPU instance.
        compute: number of its compute instance in the GPU instance.

    Raises:
        InventoryUnavailable: the driver does not show them, or they do not exist.
    """
    instance = driver.host / CAPABILITIES / f"gpu{minor}" / "mig" / f"gi{gpu}"
    return tuple(
        _node(driver, path) for path in (instance / "access", instance / f"ci{compute}/access")
    )


def _node(driver: HostDriver, access: pathlib.Path) -> str:
    try:
        found = _MINOR.search(access.read_text())
    except OSError as error:
        raise InventoryUnavailable(f"the driver does not show a MIG slice: {error}") from error
    if found is None:
        raise InventoryUnavailable(f"{access} contains no DeviceFileMinor")
    node = f"nvidia-caps/nvidia-cap{found[1]}"
    if driver.node(node) is None:
        raise InventoryUnavailable(
            f"/dev/{node} is missing, which a MIG slice needs; run nvidia-modprobe -f "
            f"/{access.relative_to(driver.host)} on the host"
        )
    return node
