# SPDX-License-Identifier: Apache-2.0
"""The activity of a GPU between two scans, from the driver's own samples.

Five times a second the driver samples for which part of the time a kernel ran. It keeps the last
samples: on an H200 for at least 14 s, and 5 ms of work are visible in them. So a scan every 10 s
misses nothing. Allocated memory alone is no activity. A GPU with MIG slices has no such samples.
"""

from collections.abc import Mapping
from typing import Any

MAX_EMPTY_SCANS = 3
"""Number of scans in a row without new samples after which the activity is unknown."""


class Activity:
    """The activity of GPUs, with the time up to which the samples of each GPU were read.

    Args:
        nvml: the module `pynvml`, or an object with its functions.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._read_to: dict[str, int] = {}
        """The time of the last sample that was read, microseconds since the epoch, by UUID."""
        self._last_busy: dict[str, bool] = {}
        """The last result, by UUID; a scan soon after another one finds no new samples."""
        self._empty_scans: dict[str, int] = {}
        """Number of scans in a row without new samples, by UUID."""

    def busy(self, handles: Mapping[str, Any]) -> dict[str, bool]:
        """Return whether each GPU ran anything since the last call, without unknown ones."""
        self._read_to = {uuid: at for uuid, at in self._read_to.items() if uuid in handles}
        busy_by_uuid = {uuid: self._is_busy(uuid, handle) for uuid, handle in handles.items()}
        self._last_busy = {uuid: used for uuid, used in busy_by_uuid.items() if used is not None}
        self._empty_scans = {
            uuid: count for uuid, count in self._empty_scans.items() if uuid in handles
        }
        return self._last_busy

    def _is_busy(self, uuid: str, handle: Any) -> bool | None:
        kind, since = self._nvml.NVML_GPU_UTILIZATION_SAMPLES, self._read_to.get(uuid, 0)
        try:
            _, samples = self._nvml.nvmlDeviceGetSamples(handle, kind, since)
        except self._nvml.NVMLError_NotFound:
            samples = []
        except self._nvml.NVMLError:
            return None
        self._empty_scans[uuid] = 0 if samples else self._empty_scans.get(uuid, 0) + 1
        if not samples:
            return self._last_busy.get(uuid) if self._empty_scans[uuid] <= MAX_EMPTY_SCANS else None
        self._read_to[uuid] = max(sample.timeStamp for sample in samples)
        return any(sample.sampleValue.uiVal > 0 for sample in samples)
