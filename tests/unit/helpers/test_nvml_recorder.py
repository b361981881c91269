# SPDX-License-Identifier: Apache-2.0
"""A recording of a recording is that recording; each of two GPUs keeps its answers."""

import json

import pynvml
from nvml_recorder import encoded, record, written
from nvml_recording import OPENS, SERIAL, RecordedNvml, h200, recorded, uuid_of


def again(nvml):
    """What is recorded of a host that plays a recording back."""
    return json.loads(json.dumps(record(nvml, pause=lambda seconds: None)))


def test_a_recording_of_a_recording_is_equal():
    made = again(h200("load"))
    # Handles are opened once more, for what connects the GPUs.
    expected = {
        key: answers for key, answers in recorded("h200", "load").items() if "Index" not in key
    }
    assert {key: made.get(key, [])[: len(expected[key])] for key in expected} == expected


def test_gpm_metrics_are_recorded_for_each_gpu():
    calls = dict(h200(gpus=2)._calls)
    for index, percent in ((0, 97.0), (1, 12.5)):
        calls[f'nvmlGpmQueryDeviceSupport["gpu{index}"]'] = [{"struct": {"isSupportedDevice": 1}}]
        metrics = [
            {"struct": {"metricId": each, "nvmlReturn": 0, "value": percent}} for each in range(3)
        ]
        calls[f'nvmlGpmMetricsGet["gpu{index}"]'] = [{"struct": {"metrics": metrics}}]
    made = again(RecordedNvml(calls))
    for index in range(2):
        key = f'nvmlGpmMetricsGet["gpu{index}"]'
        assert made[key] == calls[key] * 2


def test_only_requested_metrics_are_recorded():
    asked = pynvml.c_nvmlGpmMetricsGet_t()
    asked.numMetrics = 2
    asked.metrics[1].value = 5.0
    first, second = encoded(asked)["struct"]["metrics"]
    assert (first["struct"]["value"], second["struct"]["value"]) == (0.0, 5.0)


def test_gpus_are_named_by_their_index_and_by_nothing_of_the_host():
    real = ["GPU-ffffffff-1111-2222-3333-444444444444", "GPU-00000001-1111-2222-3333-444444444444"]
    calls = {f'nvmlDeviceGetUUID["gpu{index}"]': [uuid] for index, uuid in enumerate(real)}
    calls |= {f'nvmlDeviceGetSerial["gpu{index}"]': [f"16{index}"] for index in range(2)}
    calls[f"{OPENS}[0]"] = [{"handle": "gpu0"}]
    state = json.loads(written({"rest": calls}))["rest"]
    assert [state[f'nvmlDeviceGetUUID["gpu{index}"]'] for index in range(2)] == [
        [uuid_of(0)],
        [uuid_of(1)],
    ]
    assert state['nvmlDeviceGetSerial["gpu1"]'] == [str(int(SERIAL) + 1)]
