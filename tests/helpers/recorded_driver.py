# SPDX-License-Identifier: Apache-2.0
"""The process that asks the driver, with recorded answers.

    python recorded_driver.py STATE GPUS [CALL INDEX] [--xid FILE]

STATE is rest or load; GPUS is how many GPUs of the recorded kind the host has. A CALL about the GPU
with this INDEX does not come back. Once there is a FILE the first GPU raises the XID that it names;
no other events come.
"""

import argparse
import pathlib
import sys
import time
import types

import pynvml
from nvml_recording import Handle, h200

from gpupack_agent.inventory import prober
from gpupack_agent.inventory.driver_root import DriverSearch


class Recorded:
    """The recorded host, whose driver gives events."""

    def __init__(self, nvml, xid=None):
        self._nvml, self._xid = nvml, xid

    def __getattr__(self, name):
        return getattr(self._nvml, name)

    def nvmlInit(self):  # noqa: N802 - pynvml's own name
        """The library is there."""

    def nvmlEventSetCreate(self):  # noqa: N802 - pynvml's own name
        return object()

    def nvmlDeviceGetSupportedEventTypes(self, handle):  # noqa: N802 - pynvml's own name
        return pynvml.nvmlEventTypeXidCriticalError

    def nvmlDeviceRegisterEvents(self, handle, kinds, events):  # noqa: N802 - pynvml's own name
        """All of them are seen."""

    def nvmlEventSetWait_v2(self, events, milliseconds):  # noqa: N802 - pynvml's own name
        end = time.monotonic() + milliseconds / 1000
        while time.monotonic() < end:
            if self._xid and self._xid.exists():
                number = int(self._xid.read_text())
                self._xid.unlink()
                kind = pynvml.nvmlEventTypeXidCriticalError
                return types.SimpleNamespace(
                    eventType=kind, eventData=number, device=Handle("gpu0")
                )
            time.sleep(0.02 if self._xid else milliseconds / 1000)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)


def main():
    """Serve one agent."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("state")
    parser.add_argument("gpus", type=int)
    parser.add_argument("hangs", nargs="*")
    parser.add_argument("--xid", type=pathlib.Path)
    arguments = parser.parse_args()
    recorded = Recorded(h200(arguments.state, gpus=arguments.gpus), arguments.xid)
    if arguments.hangs:
        call, index = arguments.hangs
        recorded.faults[call, int(index)] = lambda _: time.sleep(600)
    prober.Prober(recorded, DriverSearch(pathlib.Path("/nowhere")), sys.stdout.buffer).serve(
        sys.stdin.buffer
    )


if __name__ == "__main__":
    main()
