# SPDX-License-Identifier: Apache-2.0
"""Reads the CPU time of each component of the cluster on this host from /proc.

`others` is the CPU time of all other work in the same period.
"""

import os
import time
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Any

PARTS = {
    "operator": "gpupack_operator",
    "extender": "gpupack_extender",
    "agents": "gpupack_agent",
    "kube-scheduler of gpupack": "kube-scheduler --config=/etc/gpupack/",
    "kube-scheduler of the cluster": "/kube-scheduler --kubeconfig=",
    "stock kube-scheduler": "/kube-scheduler --config=",
    "kube-apiserver": "/kube-apiserver ",
    "kube-controller-manager": "/kube-controller-manager ",
    "kubelets": "/kubelet ",
    "etcd": "/etcd ",
    "kwok": "/kwok ",
}
"""First words of a component's command lines; the first match counts."""
FIRST_WORDS = 4
TICKS = os.sysconf("SC_CLK_TCK")
STARTED_AT = 19
"""Column of /proc/PID/stat after the command's name: ticks from the boot to the process's start."""
IDLE = (3, 4)
"""Columns of /proc/stat: idle, and waiting for I/O."""


class Meter:
    """Measures CPU time from its creation on."""

    def __init__(self) -> None:
        self._began, self._busy = time.monotonic(), _busy_seconds()
        self._before = _by_process()

    def spent(self) -> dict[str, Any]:
        """Return the mean number of busy cores by component; `others` excludes this process.

        The time of a process that has ended counts as `others`.
        """
        seconds = time.monotonic() - self._began
        busy = _busy_seconds() - self._busy
        cores: defaultdict[str, float] = defaultdict(float)
        for process, spent in _by_process().items():
            cores[process[0]] += max(spent - self._before.get(process, 0.0), 0.0)
        cores["others"] = max(busy - sum(cores.values()), 0.0)
        return {
            "seconds": round(seconds, 1),
            "cores": {part: round(spent / seconds, 3) for part, spent in sorted(cores.items())},
            "load": [round(each, 1) for each in os.getloadavg()],
        }


def _by_process() -> dict[tuple[str, int], float]:
    """Return CPU seconds by component and process."""
    return {
        process: (int(figures[11]) + int(figures[12])) / TICKS
        for process, figures in _processes().items()
    }


def first_start(parts: Collection[str]) -> float:
    """Return when the first process of these components started, by the monotonic clock.

    Raises:
        ValueError: none runs.
    """
    now, since_boot = time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME)
    ticks = [int(f[STARTED_AT]) for (part, _), f in _processes().items() if part in parts]
    return now - since_boot + min(ticks) / TICKS


def _processes() -> dict[tuple[str, int], list[str]]:
    """Return the columns of /proc/PID/stat after the command's name by component and process."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")[:FIRST_WORDS]
            figures = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        command = b" ".join(words).decode(errors="replace") + " "
        part = next((part for part, mark in PARTS.items() if mark in command), None)
        if pid == os.getpid():
            part = "benchmark"
        if part is not None:
            found[part, pid] = figures
    return found


def _busy_seconds() -> float:
    """Return the busy seconds of all processors."""
    figures = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(each for at, each in enumerate(figures) if at not in IDLE) / TICKS
