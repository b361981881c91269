# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from gpupack_simulator.errors import InvalidInput
from gpupack_simulator.inputs.mixedfile import read_mixed
from gpupack_simulator.mixed import chances

EXAMPLE = Path(__file__).parents[4] / "examples/simulator/mixed.yaml"
SMALL = """\
nodes: [{name: t4, gpus: 4, model: T4, gpuMemory: 16}]
sizes: [{weight: 1, gpus: 1, cpu: 8}]
wishes: [{weight: 1}]
"""


def read(tmp_path, text):
    path = tmp_path / "mixed.yaml"
    path.write_text(text)
    return read_mixed(path)


def test_the_example_has_seven_gpu_models_and_requests_for_each():
    style = read_mixed(EXAMPLE)
    devices = [device for node in style.nodes for device in node.devices]
    assert len({(device.model, device.memory) for device in devices}) == 7
    assert len(devices) == 408
    named = {model for request in chances(style) for model in request.models}
    assert named == {device.model for device in devices}


def test_a_small_one_is_read(tmp_path):
    style = read(tmp_path, SMALL)
    ((request, chance),) = chances(style).items()
    assert (request.gpus, request.cpu, chance) == (1, 8000, 1.0)
    assert (style.pods, style.seed) == (4000, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SMALL + "pods: 0\n", "mixed.yaml:4: pods: Expected `int` >= 1"),
        (SMALL + "jobs: []\n", "unknown field `jobs`"),
        (SMALL.replace("weight: 1, gpus: 1", "gpus: 1"), "mixed.yaml:2: sizes[0]: "),
        (SMALL.replace("gpus: 1,", "gpus: 1, share: {percent: 5},"), "sizes[0]: ask for exactly"),
        (SMALL.replace("wishes: [{weight: 1}]", "wishes: []"), "1 sizes and 0 wishes"),
        (SMALL.replace("{weight: 1}", "{weight: 1, minMemory: 3}"), "wishes[0]: "),
    ],
)
def test_errors_name_their_place_in_the_file(tmp_path, text, message):
    with pytest.raises(InvalidInput) as raised:
        read(tmp_path, text)
    assert message in str(raised.value)
