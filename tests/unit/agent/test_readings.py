# SPDX-License-Identifier: Apache-2.0
from fake_nvml import FakeNvml, gpu

from gpupack_agent.inventory.readings import ENERGY_SECONDS, Readings


def test_energy_of_a_gpu_at_rest_is_read_seldom_and_of_one_at_work_at_each_scan(tmp_path):
    now, device = 0.0, gpu(0, pids=[], millijoules=1000)
    readings = Readings(FakeNvml(device), tmp_path, now=lambda: now)
    observed = []
    for seconds, pids in [
        (0, []),
        (10, []),
        (10, [7]),
        (10, [7]),
        (10, []),
        (10, []),
        (ENERGY_SECONDS, []),
    ]:
        now += seconds
        device |= {"pids": pids, "millijoules": device["millijoules"] + 1000}
        before = device.get("asked_energy", 0)
        load = readings.facts(device, uuid="GPU-0", index=0, name="").load
        observed.append((device["asked_energy"] - before, load.energy_joules))
    assert observed == [(1, 2), (0, 2), (1, 4), (1, 5), (1, 6), (0, 6), (1, 8)]
