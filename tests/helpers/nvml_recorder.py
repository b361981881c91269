# SPDX-License-Identifier: Apache-2.0
"""Record what NVML answers on this host, at rest and under load, for `nvml_recording` to play back.

    python tests/helpers/nvml_recorder.py FILE

It takes some 20 s and changes nothing about the GPUs. Under load each GPU multiplies matrices, and
the first copies to the second. What identifies the host (UUIDs, serial numbers) is replaced.
Besides what the agent asks, each pair's peer-to-peer states and each link's far end are recorded.
"""

import argparse
import contextlib
import ctypes
import functools
import itertools
import json
import pathlib
import re
import subprocess
import sys
import time
from collections import defaultdict

import pynvml
from nvml_recording import METRICS, OF_SAMPLES, OPENS, SERIAL, SamplesOwners, key_of, uuid_of

from gpupack_agent.inventory.nvml import NvmlReader
from gpupack_agent.inventory.readings import MAX_LINKS, VALUE_MEMBERS
from gpupack_agent.inventory.xids import XidWatcher

OF_EVENTS = frozenset(
    {
        "nvmlEventSetCreate",
        "nvmlEventSetWait_v2",
        "nvmlDeviceGetSupportedEventTypes",
        "nvmlDeviceRegisterEvents",
    }
)
"""Passed on as they are: played back there are none."""
SCANS = 3
SCAN_SECONDS = 2.0
LOAD_SECONDS = 4.0
"""Of work before the first scan under load: the driver's own averages take a second."""
BEGIN_SECONDS = 60.0
LOAD = """
import sys, torch
index, count = int(sys.argv[1]), int(sys.argv[2])
sys.stdin.readline()
torch.cuda.set_device(index)
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
peer = torch.empty_like(a, device="cuda:1") if index == 0 and count > 1 else None
while True:
    for _ in range(20):
        a @ a
        if peer is not None:
            peer.copy_(a)
    torch.cuda.synchronize()
    print(flush=True)
"""


class Recorder:
    """Has pynvml's functions, and notes what they answer.

    Args:
        nvml: the module `pynvml`, or anything with its functions.
    """

    def __init__(self, nvml=pynvml):
        self.calls = defaultdict(list)
        self._nvml = nvml
        self._handles = {}
        self._samples = SamplesOwners()

    def __getattr__(self, name):
        found = getattr(self._nvml, name)
        is_call = name.startswith("nvml") and callable(found) and name not in OF_EVENTS
        return functools.partial(self._call, name, found) if is_call else found

    def _call(self, name, function, *arguments):
        if name in OF_SAMPLES:
            result = function(*arguments)
            if name == "nvmlGpmSampleGet":
                self._samples.belongs(result, self._named(arguments[0]))
            return result
        key = key_of(name, [self._named(each) for each in arguments])
        try:
            result = function(*arguments)
        except pynvml.NVMLError as error:
            self.calls[key].append({"error": error.value})
            raise
        if name == OPENS:
            self._handles[id(result)] = (result, f"gpu{arguments[0]}")
            self.calls[key].append({"handle": f"gpu{arguments[0]}"})
        else:
            self.calls[key].append(encoded(result))
        return result

    def _named(self, argument):
        if name := self._samples.owner(argument):
            return name
        known = self._handles.get(id(argument))
        return known[1] if known else argument


def encoded(value):
    """Return a value in the form of JSON."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, ctypes.Array | list | tuple):
        return [encoded(each) for each in value]
    return {"struct": _fields(value)}


def _fields(value):
    """Return the member of a union that counts, and those metrics that were requested."""
    if isinstance(value, pynvml.c_nvmlFieldValue_t):
        member = VALUE_MEMBERS[value.valueType]
        field = {name: getattr(value, name) for name in ("fieldId", "valueType", "nvmlReturn")}
        return field | {"value": {"struct": {member: getattr(value.value, member)}}}
    if isinstance(value, pynvml.c_nvmlGpmMetricsGet_t):
        metrics = value.metrics[: value.numMetrics]
        return {
            "metrics": [
                {"struct": {each: getattr(one, each) for each in METRICS}} for one in metrics
            ]
        }
    if isinstance(value, ctypes.Union):
        return {"uiVal": value.uiVal}
    if isinstance(value, ctypes.Structure):
        return {name: encoded(getattr(value, name)) for name, *_ in value._fields_}
    return {name: encoded(each) for name, each in vars(value).items()}


def written(recordings):
    """Return the lines of a file, one for each call, without what identifies the host."""
    found = {}
    for calls in recordings.values():
        for key in calls:
            if called := re.fullmatch(r'nvmlDeviceGetSerial\["gpu(\d+)"\]', key):
                calls[key] = [str(int(SERIAL) + int(called[1]))]
            if called := re.fullmatch(r'nvmlDeviceGetUUID\["gpu(\d+)"\]', key):
                found[calls[key][0]] = uuid_of(int(called[1]))
    of_states = (
        f"{json.dumps(state)}: {{\n{_lines(calls)}\n}}" for state, calls in recordings.items()
    )
    text = "{\n" + ",\n".join(of_states) + "\n}\n"
    for recorded, uuid in found.items():
        text = text.replace(recorded, uuid)
    return text


def _lines(calls):
    return ",\n".join(f"{json.dumps(key)}: {json.dumps(calls[key])}" for key in sorted(calls))


def record(nvml=pynvml, *, pause=time.sleep):
    """Scan as the agent does, and look at what connects the GPUs."""
    recorder = Recorder(nvml)
    watcher = XidWatcher(recorder, notify=lambda: None)
    reader = NvmlReader(recorder, watcher, host_root=pathlib.Path("/"))
    for scan in range(SCANS):
        if scan:
            pause(SCAN_SECONDS)
        found = reader.scan()
        print([(gpu.index, gpu.health, gpu.nvlinks, gpu.nvlink_clique) for gpu in found.devices])
    connections(recorder)
    return recorder.calls


def connections(recorder):
    """Ask for the peer-to-peer states of each pair and the far end of each link."""
    handles = [
        recorder.nvmlDeviceGetHandleByIndex(index) for index in range(recorder.nvmlDeviceGetCount())
    ]
    for first, second in itertools.permutations(handles, 2):
        for capability in range(pynvml.NVML_P2P_CAPS_INDEX_UNKNOWN):
            with contextlib.suppress(pynvml.NVMLError):
                recorder.nvmlDeviceGetP2PStatus(first, second, capability)
        with contextlib.suppress(pynvml.NVMLError):
            recorder.nvmlDeviceGetTopologyCommonAncestor(first, second)
    for handle, link in itertools.product(handles, range(MAX_LINKS)):
        for call in ("State", "Version", "RemoteDeviceType", "RemotePciInfo"):
            with contextlib.suppress(pynvml.NVMLError):
                getattr(recorder, f"nvmlDeviceGetNvLink{call}")(handle, link)


@contextlib.contextmanager
def working(count):
    """Start processes that import torch and load the GPUs on a signal."""
    with contextlib.ExitStack() as stack:
        started = []
        for index in range(count):
            command = [sys.executable, "-c", LOAD, str(index), str(count)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            process = stack.enter_context(subprocess.Popen(command, **pipes))
            stack.callback(process.kill)
            started.append(process)
        yield started


def begin(started):
    """Wait until all of them work."""
    for process in started:
        process.stdin.write("\n")
        process.stdin.flush()
    for process in started:
        if not process.stdout.readline():
            raise SystemExit(f"the load ended with {process.wait(BEGIN_SECONDS)}")
    time.sleep(LOAD_SECONDS)


def main():
    """Record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=pathlib.Path)
    arguments = parser.parse_args()
    pynvml.nvmlInit()
    with working(pynvml.nvmlDeviceGetCount()) as started:
        rest = record()
        begin(started)
        load = record()
    arguments.file.write_text(written({"rest": rest, "load": load}))


if __name__ == "__main__":
    main()
