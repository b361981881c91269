# SPDX-License-Identifier: Apache-2.0
"""The activity of a GPU's multiprocessors between two scans, from NVML's GPM.

GPM is GPU performance monitoring. Utilisation is the fraction of the time for which any kernel ran,
however small. GPM shows which fraction of the GPU worked. Boards from Hopper on support it. For a
GPU with MIG slices only its slices have figures.
"""

from collections.abc import Collection
from typing import Any, Final

METRICS: Final = (
    "NVML_GPM_METRIC_SM_UTIL",
    "NVML_GPM_METRIC_ANY_TENSOR_UTIL",
    "NVML_GPM_METRIC_DRAM_BW_UTIL",
    "NVML_GPM_METRIC_GRAPHICS_UTIL",
)


class Gpm:
    """The last sample of each GPU and MIG slice.

    Args:
        nvml: the module `pynvml`, or an object with its functions.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._samples: dict[str, Any] = {}

    def percents(self, uuid: str, handle: Any, instance: int | None = None) -> dict[str, float]:
        """Return the figures since the last call, by their names in METRICS, in percent.

        They are empty at the first call, and if the board does not support them.

        Args:
            uuid: UUID of the GPU, or of a slice of it.
            handle: handle of the GPU.
            instance: number of the slice's GPU instance; None: the whole GPU.
        """
        before = self._samples.pop(uuid, None)
        try:
            sample = self._take_sample(handle, instance)
            if sample is None:
                return {}
            self._samples[uuid] = sample
            return self._compute_metrics(before, sample) if before is not None else {}
        except self._nvml.NVMLError:
            return {}
        finally:
            if before is not None:
                self._nvml.nvmlGpmSampleFree(before)

    def retain(self, uuids: Collection[str]) -> None:
        """Forget GPUs and slices that no longer exist."""
        for uuid in self._samples.keys() - set(uuids):
            self._nvml.nvmlGpmSampleFree(self._samples.pop(uuid))

    def _take_sample(self, handle: Any, instance: int | None) -> Any:
        if not self._nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            return None
        sample = self._nvml.nvmlGpmSampleAlloc()
        try:
            if instance is None:
                return self._nvml.nvmlGpmSampleGet(handle, sample)
            return self._nvml.nvmlGpmMigSampleGet(handle, instance, sample)
        except self._nvml.NVMLError:
            self._nvml.nvmlGpmSampleFree(sample)
            raise

    def _compute_metrics(self, first: Any, second: Any) -> dict[str, float]:
        query = self._nvml.c_nvmlGpmMetricsGet_t()
        query.version = self._nvml.NVML_GPM_METRICS_GET_VERSION
        query.numMetrics = len(METRICS)
        query.sample1, query.sample2 = first, second
        for position, name in enumerate(METRICS):
            query.metrics[position].metricId = getattr(self._nvml, name)
        metrics = self._nvml.nvmlGpmMetricsGet(query).metrics
        return {
            name: float(each.value)
            for name, each in zip(METRICS, metrics, strict=False)
            if each.nvmlReturn == self._nvml.NVML_SUCCESS
        }
