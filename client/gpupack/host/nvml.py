# SPDX-License-Identifier: Apache-2.0
"""The GPUs that NVIDIA's driver shows through NVML.

A call may hang when a GPU is lost. Each reading has ANSWER_SECONDS, in a thread that is then
abandoned. A GPU that does not answer is left out, and so is one with MIG enabled.
"""

import logging
import os
import threading
from concurrent.futures import Future
from typing import Any, Final

from gpupack.errors import InventoryUnavailable
from gpupack.host.inventory import MAX_SHARES, Inventory
from gpupack.training_config import BYTES_PER_MIB
from gpupack_devices.cliques import connected_groups
from gpupack_placement import Device, DeviceUuid, MiB

log = logging.getLogger(__name__)

ANSWER_SECONDS: Final = 20.0


class NvmlGpus:
    """Real GPUs.

    Args:
        nvml: the module `pynvml`, or an object with its functions.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._opened_by = 0
        """PID that opened the driver: a forked child opens it again."""

    def read(self) -> Inventory:
        """Read the inventory from the driver.

        Raises:
            InventoryUnavailable: it does not answer in time, or fails.
        """
        answer: Future[Inventory] = Future()
        threading.Thread(target=self._answer, args=(answer,), daemon=True).start()
        try:
            return answer.result(ANSWER_SECONDS)
        except TimeoutError as error:
            raise InventoryUnavailable(
                f"the NVIDIA driver has not answered for {ANSWER_SECONDS:g} s; see `nvidia-smi` "
                "and `dmesg`"
            ) from error

    def close(self) -> None:
        """Close the driver."""
        if self._opened_by == os.getpid():
            self._nvml.nvmlShutdown()
        self._opened_by = 0

    def _answer(self, answer: "Future[Inventory]") -> None:
        try:
            answer.set_result(self._read())
        except self._nvml.NVMLError as error:
            answer.set_exception(InventoryUnavailable(f"NVML: {error}; see `nvidia-smi`"))
        except BaseException as error:  # noqa: BLE001 - the waiting caller gets it
            answer.set_exception(error)

    def _read(self) -> Inventory:
        nvml = self._nvml
        if self._opened_by != os.getpid():
            try:
                nvml.nvmlInit()
            except (nvml.NVMLError_LibraryNotFound, nvml.NVMLError_DriverNotLoaded) as error:
                return Inventory((), missing=f"there is no NVIDIA driver here ({error})")
            self._opened_by = os.getpid()
        handles = {}
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = self._call_or_none(nvml.nvmlDeviceGetHandleByIndex, index)
            if handle is not None and not self._has_mig(handle):
                handles[index] = handle
        cliques = connected_groups(
            sorted(handles), lambda a, b: self._linked(handles[a], handles[b])
        )
        devices = [
            device
            for index, handle in handles.items()
            if (device := self._call_or_none(self._device, index, handle, cliques.get(index)))
            is not None
        ]
        users = {str(each.uuid): self._users(handles[each.index]) for each in devices}
        missing = "" if devices else "the NVIDIA driver lists no GPU without MIG"
        return Inventory(tuple(devices), users=users, missing=missing)

    def _device(self, index: int, handle: Any, clique: int | None) -> Device:
        nvml = self._nvml
        return Device(
            uuid=DeviceUuid(nvml.nvmlDeviceGetUUID(handle)),
            index=index,
            model=nvml.nvmlDeviceGetName(handle),
            memory=MiB(nvml.nvmlDeviceGetMemoryInfo(handle).total // BYTES_PER_MIB),
            clique=clique,
            max_shares=MAX_SHARES,
        )

    def _has_mig(self, handle: Any) -> bool:
        mode = self._call_or_none(self._nvml.nvmlDeviceGetMigMode, handle)
        return bool(mode and mode[0] == self._nvml.NVML_DEVICE_MIG_ENABLE)

    def _linked(self, low: Any, high: Any) -> bool:
        capability = self._nvml.NVML_P2P_CAPS_INDEX_NVLINK
        status = self._call_or_none(self._nvml.nvmlDeviceGetP2PStatus, low, high, capability)
        return bool(status == self._nvml.NVML_P2P_STATUS_OK)

    def _users(self, handle: Any) -> frozenset[int]:
        processes = self._call_or_none(self._nvml.nvmlDeviceGetComputeRunningProcesses, handle)
        return frozenset(each.pid for each in processes or ())

    def _call_or_none(self, call: Any, *arguments: Any) -> Any:
        """Call NVML; return None where the call fails."""
        try:
            return call(*arguments)
        except self._nvml.NVMLError as error:
            log.debug("%s: %s", getattr(call, "__name__", call), error)
            return None
