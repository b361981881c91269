# SPDX-License-Identifier: Apache-2.0
"""How many threads NumPy computes with, without which its time says nothing."""

import os
from collections.abc import Mapping
from pathlib import Path

from gpupack_workloads.settings import usable_cpus

# As OpenBLAS looks them up.
NAMES = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")


def cpu_threads(environ: Mapping[str, str], cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return what is set, at most one per CPU there is; else one per CPU that may be used."""
    for name in NAMES:
        text = environ.get(name, "")
        if text.isdecimal() and int(text):
            return min(int(text), len(os.sched_getaffinity(0)))
    return usable_cpus(cgroup)
