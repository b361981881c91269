# SPDX-License-Identifier: Apache-2.0
"""What worked between two scans, by a faked NVML that counts the samples that are kept."""

import types

import pynvml
import pytest

from gpupack_agent.inventory.gpm import METRICS, Gpm


class Monitored:
    """Each sample is a number; what worked between two is their distance in percent."""

    def __init__(self):
        self.kept, self.taken = set(), 0
        self.of_slices = []
        self.is_supported, self.is_lost = True, False

    def __getattr__(self, name):
        return getattr(pynvml, name)

    def c_nvmlGpmMetricsGet_t(self):  # noqa: N802 - pynvml's own name
        metrics = [types.SimpleNamespace() for _ in METRICS]
        return types.SimpleNamespace(metrics=metrics)

    def nvmlGpmQueryDeviceSupport(self, handle):  # noqa: N802 - pynvml's own name
        return types.SimpleNamespace(isSupportedDevice=self.is_supported)

    def nvmlGpmSampleAlloc(self):  # noqa: N802 - pynvml's own name
        self.taken += 1
        self.kept.add(self.taken)
        return self.taken

    def nvmlGpmSampleGet(self, handle, sample):  # noqa: N802 - pynvml's own name
        if self.is_lost:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return sample

    def nvmlGpmMigSampleGet(self, handle, instance, sample):  # noqa: N802 - pynvml's own name
        self.of_slices.append((handle, instance))
        return sample

    def nvmlGpmSampleFree(self, sample):  # noqa: N802 - pynvml's own name
        self.kept.remove(sample)

    def nvmlGpmMetricsGet(self, query):  # noqa: N802 - pynvml's own name
        assert {query.sample1, query.sample2} <= self.kept
        for metric in query.metrics:
            metric.value = float(query.sample2 - query.sample1)
            is_supported = metric.metricId != pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL
            metric.nvmlReturn = 0 if is_supported else pynvml.NVML_ERROR_NOT_SUPPORTED
        return query


@pytest.fixture
def nvml():
    return Monitored()


@pytest.fixture
def gpm(nvml):
    return Gpm(nvml)


def test_figures_cover_the_time_between_two_scans_without_unsupported_ones(gpm):
    assert gpm.percents("GPU-0", None) == {}
    assert gpm.percents("GPU-0", None) == {
        "NVML_GPM_METRIC_GRAPHICS_UTIL": 1.0,
        "NVML_GPM_METRIC_SM_UTIL": 1.0,
        "NVML_GPM_METRIC_DRAM_BW_UTIL": 1.0,
    }


def test_one_sample_is_kept_of_each_present_gpu(gpm, nvml):
    for _ in range(3):
        gpm.percents("GPU-0", None)
        gpm.percents("GPU-1", None)
    assert nvml.kept == {5, 6}
    gpm.retain({"GPU-1"})
    assert nvml.kept == {6}


def test_a_lost_gpu_leaves_no_sample_and_starts_again(gpm, nvml):
    gpm.percents("GPU-0", None)
    nvml.is_lost = True
    assert gpm.percents("GPU-0", None) == {}
    assert nvml.kept == set()
    nvml.is_lost = False
    assert gpm.percents("GPU-0", None) == {}
    assert gpm.percents("GPU-0", None)["NVML_GPM_METRIC_SM_UTIL"] == 1.0


def test_a_board_without_gpm_has_no_figures(gpm, nvml):
    nvml.is_supported = False
    assert (gpm.percents("GPU-0", None), nvml.taken) == ({}, 0)


def test_a_slice_is_sampled_by_its_gpu_and_the_number_of_its_instance(nvml, gpm):
    assert gpm.percents("MIG-1", "gpu", 7) == {}
    assert gpm.percents("MIG-1", "gpu", 7)["NVML_GPM_METRIC_SM_UTIL"] == 1.0
    assert nvml.of_slices == [("gpu", 7)] * 2
