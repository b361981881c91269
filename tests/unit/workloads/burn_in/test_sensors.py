# SPDX-License-Identifier: Apache-2.0
"""Reading a GPU through NVML; the library here is a stand-in with pynvml's own names."""

import sys
import types

import pynvml
import pytest

from gpupack_workloads.burn_in.sensors import NvmlSensors, Sample, open_sensors


class NotSupported(Exception):
    pass


def field_values(handle, fields):
    value = types.SimpleNamespace(nvmlReturn=0, value=types.SimpleNamespace(uiVal=74))
    return [value for _ in fields]


def forbidden(*_):
    raise AssertionError("something was set")


READINGS = {
    "nvmlDeviceGetPowerUsage": lambda handle: 690_500,
    "nvmlDeviceGetClockInfo": lambda handle, kind: 1485,
    "nvmlDeviceGetMaxClockInfo": lambda handle, kind: 1980,
    "nvmlDeviceGetTemperature": lambda handle, sensor: 66,
    "nvmlDeviceGetFieldValues": field_values,
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: 0x4 | 0x20,
    "nvmlDeviceGetTotalEccErrors": lambda handle, kind, since: kind,
    "nvmlDeviceGetPcieReplayCounter": lambda handle: 9,
    "nvmlDeviceGetRemappedRows": lambda handle: (4, 3, True, False),
    "nvmlSystemGetDriverVersion": lambda: "580.1",
}


def library(**changes):
    """Replacement of NVML with the given readings."""

    def refuse(*_):
        raise NotSupported

    functions = {name: refuse for name in vars(pynvml) if name.startswith("nvml")}
    constants = {
        name: value
        for name, value in vars(pynvml).items()
        if name.startswith(("NVML_", "nvmlClocksThrottleReason", "nvmlEventType"))
    }
    return types.SimpleNamespace(
        **(functions | constants | READINGS | {"NVMLError": NotSupported} | changes)
    )


def test_readings_are_in_their_units():
    sample = NvmlSensors(library(), "gpu").sample()
    assert (sample.temperature_c, sample.memory_temperature_c) == (66, 74)
    assert (sample.power_watts, sample.sm_clock_mhz, sample.clock_ratio) == (690.5, 1485, 0.75)


def test_thermal_slowdowns_and_the_power_cap_are_distinguished():
    sample = NvmlSensors(library(), "gpu").sample()
    assert (sample.power_capped, sample.slowdowns.heat, sample.slowdowns.board) == (
        True,
        True,
        False,
    )


def test_counters_are_named_like_their_limits():
    assert NvmlSensors(library(), "gpu").counters() == {
        "corrected_ecc_errors": 0,
        "uncorrected_ecc_errors": 1,
        "pcie_replays": 9,
        "recovery_action": 74,
        "remapped_rows": 3,
        "remapping_troubles": 1,
    }


def test_a_board_without_sensors_gives_no_readings():
    def refuse(*_):
        raise NotSupported

    sensors = NvmlSensors(library(**dict.fromkeys(READINGS, refuse)), "gpu")
    assert (sensors.sample(), sensors.counters(), sensors.xids()) == (Sample(), {}, [])


def test_xids_of_applications_are_left_out():
    raised = [48, 13]

    def wait(events, milliseconds):
        if not raised:
            raise NotSupported
        return types.SimpleNamespace(eventData=raised.pop())

    nvml = library(
        nvmlEventSetCreate=lambda: "events",
        nvmlDeviceRegisterEvents=lambda handle, kinds, events: None,
        nvmlEventSetWait_v2=wait,
    )
    assert NvmlSensors(nvml, "gpu").xids() == [48]


def test_sensors_change_no_settings():
    setters = [name for name in vars(pynvml) if "Set" in name and "EventSet" not in name]
    sensors = NvmlSensors(library(**dict.fromkeys(setters, forbidden)), "gpu")
    assert sensors.sample().power_watts
    assert sensors.counters()
    assert sensors.xids() == []


@pytest.mark.parametrize(
    ("module", "why"),
    [(None, "none: the Python package nvidia-ml-py is not installed"), (library(), "none: NVML: ")],
)
def test_without_the_library_or_the_driver_there_are_no_readings_and_a_reason(
    monkeypatch, module, why
):
    monkeypatch.setitem(sys.modules, "pynvml", module)
    sensors = open_sensors("GPU-1")
    assert sensors.source == why
    assert (sensors.sample(), sensors.counters(), sensors.xids()) == (None, {}, [])
