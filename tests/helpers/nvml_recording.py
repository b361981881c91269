# SPDX-License-Identifier: Apache-2.0
"""What NVML answered on a real host, call by call: recorded once, played back where there is none.

A recording maps each call, as its name and arguments, to the answers that it got in turn. Played
back, the last one is given again and again. What identifies the host (UUIDs, serial numbers) is
replaced when it is recorded.

    python tests/helpers/nvml_recording.py FILE    on a host with GPUs: at rest, then under load
"""

import argparse
import contextlib
import ctypes
import functools
import json
import pathlib
import re
import subprocess
import sys
import time
import types
from collections import defaultdict

import pynvml

from gpupack_agent.inventory.readings import VALUE_MEMBERS

OPENS = "nvmlDeviceGetHandleByIndex"
OF_EVENTS = frozenset(
    {
        "nvmlEventSetCreate",
        "nvmlEventSetWait_v2",
        "nvmlDeviceGetSupportedEventTypes",
        "nvmlDeviceRegisterEvents",
    }
)
"""Passed on as they are: played back there are none."""
RECORDINGS = pathlib.Path(__file__).parents[1] / "unit/agent/recordings"
UUID = "GPU-00000000-0000-0000-0000-000000000000"
"""Of the first GPU of a recording."""
SERIAL = "1650000000000"
LOAD = """
import time, torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
end = time.monotonic() + 60
while time.monotonic() < end:
    for _ in range(20):
        a @ a
    torch.cuda.synchronize()
"""


class Recorder:
    """Has pynvml's functions, and notes what they answer."""

    def __init__(self):
        self.calls = defaultdict(list)
        self._handles = {}
        self._known = {}

    def __getattr__(self, name):
        found = getattr(pynvml, name)
        is_call = name.startswith("nvml") and callable(found) and name not in OF_EVENTS
        return functools.partial(self._call, name, found) if is_call else found

    def _call(self, name, function, *arguments):
        key = _key(name, [self._named(each) for each in arguments])
        try:
            result = function(*arguments)
        except pynvml.NVMLError as error:
            self.calls[key].append({"error": error.value})
            raise
        if name == OPENS:
            self._handles[id(result)] = (result, f"gpu{arguments[0]}")
        self.calls[key].append(
            {"handle": f"gpu{arguments[0]}"} if name == OPENS else encoded(result)
        )
        return result

    def _named(self, argument):
        known = self._handles.get(id(argument))
        return known[1] if known else argument


def encoded(value):
    """As JSON has it."""
    if isinstance(value, bytes):
        return value.decode()
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, ctypes.Array | list | tuple):
        return [encoded(each) for each in value]
    return {"struct": _fields(value)}


def _fields(value):
    """Of a union the member that counts."""
    if isinstance(value, pynvml.c_nvmlFieldValue_t):
        member = VALUE_MEMBERS[value.valueType]
        told = {name: getattr(value, name) for name in ("fieldId", "valueType", "nvmlReturn")}
        return told | {"value": {"struct": {member: getattr(value.value, member)}}}
    if isinstance(value, ctypes.Union):
        return {"uiVal": value.uiVal}
    if isinstance(value, ctypes.Structure):
        return {name: encoded(getattr(value, name)) for name, *_ in value._fields_}
    return {name: encoded(each) for name, each in vars(value).items()}


def decoded(value):
    """As pynvml gives it, but for bytes, which are text."""
    if isinstance(value, list):
        return [decoded(each) for each in value]
    if isinstance(value, dict) and "struct" in value:
        fields = {name: decoded(each) for name, each in value["struct"].items()}
        return types.SimpleNamespace(**fields)
    return value


class Handle(str):
    """Of a recorded GPU."""

    __slots__ = ()


class RecordedNvml:
    """Has pynvml's functions and constants, and answers what was recorded.

    Attributes:
        faults: by a call's name and the GPU's index (None: about none), what is done instead: an
            exception is raised, a function is called with the recorded answer.
    """

    def __init__(self, calls):
        self._calls = calls
        self._turn = defaultdict(int)
        self.faults = {}

    def __getattr__(self, name):
        found = getattr(pynvml, name)
        is_call = name.startswith("nvml") and callable(found)
        return functools.partial(self._call, name) if is_call else found

    def _call(self, name, *arguments):
        answer = functools.partial(self._answer, name, arguments)
        fault = self.faults.get((name, _index(name, arguments)))
        if fault is None:
            fault = self.faults.get(("*", _index(name, arguments)))
        if isinstance(fault, Exception):
            raise fault
        return answer() if fault is None else fault(answer())

    def _answer(self, name, arguments):
        key = _key(name, arguments)
        answers = self._calls.get(key)
        if not answers:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        turn = min(self._turn[key], len(answers) - 1)
        self._turn[key] += 1
        answer = answers[turn]
        if isinstance(answer, dict) and "error" in answer:
            raise pynvml.NVMLError(answer["error"])
        if isinstance(answer, dict) and "handle" in answer:
            return Handle(answer["handle"])
        return decoded(answer)


def h200(state="rest", *, gpus=1):
    """The recorded host at rest or under load, with so many GPUs of its kind."""
    recording = json.loads((RECORDINGS / "h200.json").read_text())[state]
    calls = dict(recording)
    for index in range(1, gpus):
        for key, answers in recording.items():
            told = json.dumps(answers).replace(UUID, f"{UUID[:-3]}{index:03d}")
            calls[key.replace('"gpu0"', f'"gpu{index}"')] = json.loads(told)
        calls[f"{OPENS}[{index}]"] = [{"handle": f"gpu{index}"}]
    calls["nvmlDeviceGetCount[]"] = [gpus]
    return RecordedNvml(calls)


def _key(name, arguments):
    return f"{name}{json.dumps(list(arguments), default=str)}"


def _index(name, arguments):
    if name == OPENS:
        return arguments[0]
    first = arguments[0] if arguments else None
    return int(first.removeprefix("gpu")) if isinstance(first, Handle) else None


def written(recordings):
    """As a file holds them, a call a line, without what identifies the host."""
    for calls in recordings.values():
        for key in calls:
            if key.startswith("nvmlDeviceGetSerial"):
                calls[key] = [SERIAL]
    of_states = (
        f"{json.dumps(state)}: {{\n{_lines(calls)}\n}}" for state, calls in recordings.items()
    )
    text = "{\n" + ",\n".join(of_states) + "\n}\n"
    for number, uuid in enumerate(sorted(set(re.findall(r"GPU-[0-9a-f-]{36}", text)))):
        text = text.replace(uuid, f"GPU-00000000-0000-0000-0000-{number:012d}")
    return text


def _lines(calls):
    return ",\n".join(f"{json.dumps(key)}: {json.dumps(calls[key])}" for key in sorted(calls))


def main():
    """Record."""
    from gpupack_agent.inventory.nvml import NvmlReader  # noqa: PLC0415
    from gpupack_agent.inventory.xids import XidWatcher  # noqa: PLC0415

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=pathlib.Path)
    arguments = parser.parse_args()
    pynvml.nvmlInit()
    recordings = {}
    for state in ("rest", "load"):
        with contextlib.ExitStack() as stack:
            if state == "load":
                working = stack.enter_context(subprocess.Popen([sys.executable, "-c", LOAD]))
                stack.callback(working.kill)
                time.sleep(25)
            recorder = Recorder()
            reader = NvmlReader(
                recorder,
                XidWatcher(recorder, notify=lambda: None),
                host_root=pathlib.Path("/"),
            )
            for _ in range(3):
                print(reader.scan(), flush=True)
                time.sleep(2)
            recordings[state] = recorder.calls
    arguments.file.write_text(written(recordings))


if __name__ == "__main__":
    main()
