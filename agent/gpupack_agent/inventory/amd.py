# SPDX-License-Identifier: Apache-2.0
"""AMD's GPUs through AMD SMI, for nodes that AMD's device plugin serves.

The code follows the library's documentation for ROCm 6 and 7. It was tested with a substitute for
the library, because no AMD GPU was available. Node labels describe the node's GPUs together; this
module adds model and memory of each GPU. Any call may hang for ever, so it runs in a separate
process (`amd_prober`).
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from gpupack_agent.errors import InventoryUnavailable
from gpupack_agent.inventory.base import Findings
from gpupack_crds.gpunode import GpuDevice

log = logging.getLogger(__name__)

RESOURCE = "amd.com/gpu"
MEMORY_FIELDS = ("vram_size", "vram_size_mb")
"""The fields with the memory in MiB; the second one is that of ROCm 6.0 and 6.1."""


class AmdReader:
    """The GPUs that AMD's driver shows.

    Args:
        smi: the module `amdsmi`, or an object with its functions.
        report_gpu: called with the index of the GPU that the next calls concern; None: no single
            GPU.
    """

    def __init__(self, smi: Any, report_gpu: Callable[[int | None], None] = lambda _: None) -> None:
        self._smi, self._report_gpu = smi, report_gpu
        self._initialized = False

    def scan(self) -> Findings:
        """Read every GPU that answers.

        Raises:
            InventoryUnavailable: there is no driver, or it does not list its GPUs.
        """
        self._report_gpu(None)
        try:
            if not self._initialized:
                self._smi.amdsmi_init()
                self._initialized = True
            handles = self._smi.amdsmi_get_processor_handles()
        except self._smi.AmdSmiException as error:
            raise InventoryUnavailable(f"AMD SMI: {error}") from error
        found = (self._device(index, handle) for index, handle in enumerate(handles))
        return Findings(devices=tuple(device for device in found if device is not None))

    def _device(self, index: int, handle: Any) -> GpuDevice | None:
        self._report_gpu(index)
        try:
            asic = self._smi.amdsmi_get_gpu_asic_info(handle)
            memory = _memory(self._smi.amdsmi_get_gpu_vram_info(handle))
            address = self._smi.amdsmi_get_gpu_device_bdf(handle).lower()
        except self._smi.AmdSmiException as error:
            log.warning("AMD's GPU %d does not answer: %s", index, error)
            return None
        if memory is None:
            log.warning("AMD's GPU %d at %s does not report its memory", index, address)
            return None
        return GpuDevice(
            uuid=address,
            index=index,
            model=str(asic["market_name"]).strip(),
            memory_mib=memory,
            serial=str(asic.get("asic_serial", "")),
            pci_bus_id=address,
            numa_node=self._numa_node(handle),
            resource=RESOURCE,
        )

    def _numa_node(self, handle: Any) -> int | None:
        try:
            node = int(self._smi.amdsmi_topo_get_numa_node_number(handle))
        except self._smi.AmdSmiException:
            return None
        return node if node >= 0 else None


def _memory(info: Mapping[str, Any]) -> int | None:
    """Return the memory in MiB; None if the driver does not know it: then it is the text `N/A`."""
    value = next((info[name] for name in MEMORY_FIELDS if name in info), None)
    return value if isinstance(value, int) and value > 0 else None
