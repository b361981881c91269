# SPDX-License-Identifier: Apache-2.0
"""Wraps a workload's run with the recorder.

A gang's work happens in processes that this one starts: those record themselves, as set in their
environment (see distributed/rank.py), and the result that comes back has the profile of the first.
"""

import importlib
import inspect
import os
from collections.abc import Callable
from typing import Any

from gpupack_workloads.profile.settings import Recording
from gpupack_workloads.results import Result

Run = Callable[[Any], Result]


def around(recording: Recording) -> Callable[[Run], Run]:
    """Return what turns the run of a workload's module into a recorded one."""

    def recorded(run: Run) -> Run:
        def wrapped(module: Any) -> Result:
            if starts_processes(module):
                os.environ.update(recording.to_environ())
                return run(module)
            recorder: Any = importlib.import_module("gpupack_workloads.profile.recorder")
            result: Result = recorder.record(recording, lambda: run(module))
            return result

        return wrapped

    return recorded


def starts_processes(module: Any) -> bool:
    """Return whether a workload starts processes: then it takes its place in a gang."""
    return "gang" in inspect.signature(module.run).parameters


def recorded_rank(measure: Callable[..., Result]) -> Callable[..., Result]:
    """Return a process's part of a gang's work, recorded if the environment says so."""
    recording = Recording.from_environ(os.environ)
    if recording is None:
        return measure

    def wrapped(*arguments: Any) -> Result:
        recorder: Any = importlib.import_module("gpupack_workloads.profile.recorder")
        result: Result = recorder.record(recording, lambda: measure(*arguments))
        return result

    return wrapped
