# SPDX-License-Identifier: Apache-2.0
"""The process that asks the driver, with a faked one: `python faked_driver.py STATE`.

STATE is a JSON file, read again at each scan: `gpus` as FakeNvml takes them; `hangs`, by the name
of a call the indices of the GPUs for which it does not come back (null: whatever it is about);
`event`, an XID that GPU 0 raises; `missing`: there is no driver; `unavailable`: it was unloaded.
"""

import functools
import json
import pathlib
import sys
import time
import types

from fake_nvml import FakeNvml

from gpupack_agent.inventory import prober
from gpupack_agent.inventory.driver_root import DriverSearch


def _gpu(facts, index):
    """JSON's keys are texts; the driver's numbers are none."""
    numbered = {
        fact: {int(number): value for number, value in facts[fact].items()}
        for fact in ("profiles", "places")
        if fact in facts
    }
    return facts | numbered | {"index": index}


class Faked:
    """FakeNvml as the file says it is now."""

    NVMLError_Timeout = FakeNvml.NVMLError_Timeout

    def __init__(self, path):
        self._path = path
        self._fake = FakeNvml()
        self._read()

    def _read(self):
        self._state = json.loads(self._path.read_text())
        self._fake.gpus = [_gpu(facts, n) for n, facts in enumerate(self._state["gpus"])]

    def __getattr__(self, name):
        if name == "nvmlInit":
            return self._init
        found = getattr(self._fake, name)
        is_call = name.startswith("nvml") and callable(found)
        return functools.partial(self._call, name, found) if is_call else found

    def _init(self):
        if self._state.get("missing"):
            raise FakeNvml.NVMLError("Driver Not Loaded")

    def _call(self, name, function, *arguments):
        if name == "nvmlDeviceGetCount":
            self._read()
            if self._state.get("unavailable"):
                raise FakeNvml.NVMLError("Uninitialized")
        of = arguments[0] if arguments else None
        index = of.get("index") if isinstance(of, dict) else of
        hangs = self._state.get("hangs", {}).get(name, ())
        if hangs is None or index in hangs:
            time.sleep(600)
        result = function(*arguments)
        if "Create" in name or "Destroy" in name:
            self._path.write_text(json.dumps(self._state | {"gpus": self._fake.gpus}))
        if name == "nvmlDeviceRegisterEvents" and (xid := self._state.get("event")):
            event = types.SimpleNamespace(eventType=8, eventData=xid, device=of)
            self._fake.events.put(event)
        return result


if __name__ == "__main__":
    path = pathlib.Path(sys.argv[1])
    faked = Faked(path)
    prober.Prober(faked, DriverSearch(path.parent), sys.stdout.buffer).serve(sys.stdin.buffer)
