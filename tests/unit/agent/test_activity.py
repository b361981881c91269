# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: N802 - the fake carries pynvml's names
"""NVML is faked; the module's docstring has the samples of a real driver."""

import types

import pytest

from gpupack_agent.inventory.activity import MAX_EMPTY_SCANS, Activity


class NVMLError(Exception):
    pass


class NVMLError_NotFound(NVMLError):  # noqa: N801 - pynvml's own name
    pass


class FakeNvml:
    """Handles are lists of (microseconds, percent); None: the GPU gives no samples."""

    NVML_GPU_UTILIZATION_SAMPLES = 1

    NVMLError, NVMLError_NotFound = NVMLError, NVMLError_NotFound

    def nvmlDeviceGetSamples(self, handle, kind, since):
        assert kind == self.NVML_GPU_UTILIZATION_SAMPLES
        if handle is None:
            raise NVMLError("not supported")
        found = [
            types.SimpleNamespace(timeStamp=at, sampleValue=types.SimpleNamespace(uiVal=percent))
            for at, percent in handle
            if at > since
        ]
        if not found:
            raise NVMLError_NotFound("no new samples")
        return 1, found


@pytest.fixture
def activity():
    return Activity(FakeNvml())


def test_one_sample_of_work_makes_a_gpu_busy(activity):
    handles = {"a": [(1, 0), (2, 1), (3, 0)], "b": [(1, 0), (2, 0)]}
    assert activity.busy(handles) == {"a": True, "b": False}


def test_samples_count_once(activity):
    samples = [(1, 50)]
    assert activity.busy({"a": samples}) == {"a": True}
    samples.append((2, 0))
    assert activity.busy({"a": samples}) == {"a": False}


def test_activity_of_a_gpu_without_samples_is_unknown(activity):
    assert activity.busy({"a": [], "b": None}) == {}


@pytest.mark.parametrize("percent", [0, 7])
def test_a_scan_that_follows_too_soon_for_new_samples_changes_nothing(activity, percent):
    handles = {"a": [(1, percent)]}
    assert activity.busy(handles) == activity.busy(handles) == {"a": percent > 0}


def test_samples_of_a_gpu_that_reappears_are_read_from_the_beginning(activity):
    activity.busy({"a": [(9, 50)]})
    activity.busy({})
    assert activity.busy({"a": [(9, 50)]}) == {"a": True}


def test_activity_is_unknown_after_the_driver_stops_sampling(activity):
    handles = {"a": [(1, 0)]}
    expected = [activity.busy(handles) for _ in range(MAX_EMPTY_SCANS + 2)]
    assert expected == [{"a": False}] * (MAX_EMPTY_SCANS + 1) + [{}]
