# SPDX-License-Identifier: Apache-2.0
"""Whether anything ran on a GPU between two scans, by the driver's own samples.

The driver samples five times a second which part of that time a kernel ran, and keeps the last
samples: on an H200 for 14 s and more, and 5 ms of work show in them. So a scan every 10 s misses
nothing. Memory that is held runs nothing. A GPU that is cut into slices has no such samples.
"""

from collections.abc import Mapping
from typing import Any

MAX_IN_VAIN = 3
"""Scans in a row without new samples; then it is not known any more."""


class Activity:
    """Remembers up to where the samples of each GPU were read.

    Args:
        nvml: the module `pynvml`, or anything with its functions.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._read_to: dict[str, int] = {}
        """Microseconds since the epoch, by UUID."""
        self._told: dict[str, bool] = {}
        """The last answer; a scan that follows soon after another finds no new samples."""
        self._in_vain: dict[str, int] = {}
        """Scans in a row that found none."""

    def busy(self, handles: Mapping[str, Any]) -> dict[str, bool]:
        """Whether each GPU ran anything since it was last asked; without those that do not tell."""
        self._read_to = {uuid: at for uuid, at in self._read_to.items() if uuid in handles}
        told = {uuid: self._used(uuid, handle) for uuid, handle in handles.items()}
        self._told = {uuid: used for uuid, used in told.items() if used is not None}
        self._in_vain = {uuid: times for uuid, times in self._in_vain.items() if uuid in handles}
        return self._told

    def _used(self, uuid: str, handle: Any) -> bool | None:
        kind, since = self._nvml.NVML_GPU_UTILIZATION_SAMPLES, self._read_to.get(uuid, 0)
        try:
            _, samples = self._nvml.nvmlDeviceGetSamples(handle, kind, since)
        except self._nvml.NVMLError_NotFound:
            samples = []
        except self._nvml.NVMLError:
            return None
        self._in_vain[uuid] = 0 if samples else self._in_vain.get(uuid, 0) + 1
        if not samples:
            return self._told.get(uuid) if self._in_vain[uuid] <= MAX_IN_VAIN else None
        self._read_to[uuid] = max(sample.timeStamp for sample in samples)
        return any(sample.sampleValue.uiVal > 0 for sample in samples)
