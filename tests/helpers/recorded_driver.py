# SPDX-License-Identifier: Apache-2.0
"""The process that asks the driver, with recorded answers.

    python recorded_driver.py STATE GPUS [CALL INDEX]

STATE is rest or load; GPUS is how many GPUs of the recorded kind the host has. A CALL about the GPU
with this INDEX does not come back. No events come.
"""

import pathlib
import sys
import time

import pynvml
from nvml_recording import h200

from gpupack_agent.inventory import prober


class Recorded:
    """The recorded host, whose driver gives events and has none."""

    def __init__(self, nvml):
        self._nvml = nvml

    def __getattr__(self, name):
        return getattr(self._nvml, name)

    def nvmlInit(self):  # noqa: N802 - pynvml's own name
        """The library is there."""

    def nvmlEventSetCreate(self):  # noqa: N802 - pynvml's own name
        return object()

    def nvmlEventSetWait_v2(self, events, milliseconds):  # noqa: N802 - pynvml's own name
        time.sleep(milliseconds / 1000)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)


if __name__ == "__main__":
    recorded = Recorded(h200(sys.argv[1], gpus=int(sys.argv[2])))
    if sys.argv[3:]:
        call, index = sys.argv[3:]
        recorded.faults[call, int(index)] = lambda _: time.sleep(600)
    root = pathlib.Path("/nowhere")
    prober.Prober(recorded, root, sys.stdout.buffer).serve(sys.stdin.buffer)
