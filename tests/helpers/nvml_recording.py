# SPDX-License-Identifier: Apache-2.0
"""What NVML answered on a real host, call by call: recorded once, played back where there is none.

A recording (nvml_recorder.py makes them) maps each call, as its name and arguments, to the answers
that it got in turn. Played back, the last one is given again and again.
"""

import ctypes
import functools
import json
import pathlib
import types
from collections import defaultdict

import pynvml

OPENS = "nvmlDeviceGetHandleByIndex"
RECORDINGS = pathlib.Path(__file__).parents[1] / "unit/agent/recordings"
SERIAL = "1650000000000"
"""Of the first GPU of a recording; others follow."""
OF_SAMPLES = frozenset({"nvmlGpmSampleAlloc", "nvmlGpmSampleGet", "nvmlGpmSampleFree"})
"""Not recorded: which GPU a sample is of is all that is known of one."""
METRICS = ("metricId", "nvmlReturn", "value")


def uuid_of(index):
    """Return the UUID of a GPU of a recording."""
    return f"GPU-00000000-0000-0000-0000-{index:012d}"


UUID = uuid_of(0)


def key_of(name, arguments):
    """Return the key of a call in a recording."""
    return f"{name}{json.dumps(list(arguments), default=str)}"


class SamplesOwners:
    """Which GPU each sample of performance monitoring is of, by its address."""

    def __init__(self):
        self._owners = {}

    def belongs(self, sample, gpu):
        """Note it."""
        self._owners[address(sample)] = gpu

    def owner(self, asked):
        """Return the owner of a call about two samples; None for any other call."""
        if not isinstance(asked, pynvml.c_nvmlGpmMetricsGet_t):
            return None
        return self._owners[address(asked.sample2)]


def address(pointer):
    """Return the address by which samples are distinguished."""
    return ctypes.cast(pointer, ctypes.c_void_p).value


def decoded(value):
    """Return a value as pynvml returns it, with text instead of bytes."""
    if isinstance(value, list):
        return [decoded(each) for each in value]
    if isinstance(value, dict) and "struct" in value:
        fields = {name: decoded(each) for name, each in value["struct"].items()}
        return types.SimpleNamespace(**fields)
    return value


class Handle(str):
    """Handle of a recorded GPU."""

    __slots__ = ()


class RecordedNvml:
    """Has pynvml's functions and constants, and answers what was recorded.

    Attributes:
        faults: by a call's name and the GPU's index (None: about none), what is done instead: an
            exception is raised, a function is called with the recorded answer.
    """

    def __init__(self, calls):
        self.calls = calls
        self._turn = defaultdict(int)
        self._owners, self._samples = SamplesOwners(), {}
        self.faults = {}

    def __getattr__(self, name):
        found = getattr(pynvml, name)
        is_call = name.startswith("nvml") and callable(found)
        return functools.partial(self._call, name) if is_call else found

    def _call(self, name, *arguments):
        if any(isinstance(each, tuple) for each in arguments):
            raise ctypes.ArgumentError(f"{name}: ctypes takes no tuple")
        answer = functools.partial(self._answer, name, arguments)
        fault = self.faults.get((name, _index(name, arguments)))
        if fault is None:
            fault = self.faults.get(("*", _index(name, arguments)))
        if isinstance(fault, Exception):
            raise fault
        return answer() if fault is None else fault(answer())

    def _answer(self, name, arguments):
        if name in OF_SAMPLES:
            return self._sample(name, *arguments)
        key = key_of(name, [self._owners.owner(each) or each for each in arguments])
        answers = self.calls.get(key)
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

    def _sample(self, name, *arguments):
        if name == "nvmlGpmSampleAlloc":
            memory = ctypes.create_string_buffer(1)
            self._samples[ctypes.addressof(memory)] = memory
            return ctypes.cast(memory, pynvml.c_nvmlGpmSample_t)
        if name == "nvmlGpmSampleGet":
            handle, sample = arguments
            self._owners.belongs(sample, handle)
            return sample
        del self._samples[address(arguments[0])]
        return None


def recorded(host, state):
    """The calls of a recorded host, at `rest` or under `load`."""
    return json.loads((RECORDINGS / f"{host}.json").read_text())[state]


def h200(state="rest", *, gpus=1):
    """The recorded host with one H200, at rest or under load, with so many GPUs of its kind."""
    recording = recorded("h200", state)
    calls = dict(recording)
    for index in range(1, gpus):
        for key, answers in recording.items():
            text = json.dumps(answers).replace(UUID, uuid_of(index))
            calls[key.replace('"gpu0"', f'"gpu{index}"')] = json.loads(text)
        calls[f"{OPENS}[{index}]"] = [{"handle": f"gpu{index}"}]
    calls["nvmlDeviceGetCount[]"] = [gpus]
    return RecordedNvml(calls)


def h100s(state="rest", *, order=(0, 1)):
    """The recorded host with two H100s behind an NVSwitch; `order`: which GPU has which index."""
    calls = recorded("h100x2", state)
    for index, gpu in enumerate(order):
        calls[f"{OPENS}[{index}]"] = [{"handle": f"gpu{gpu}"}]
    return RecordedNvml(calls)


def _index(name, arguments):
    if name == OPENS:
        return arguments[0]
    first = arguments[0] if arguments else None
    return int(first.removeprefix("gpu")) if isinstance(first, Handle) else None
