# SPDX-License-Identifier: Apache-2.0
"""Runs a workload under torch's profiler and adds the digest to its result.

The trace is one file that both Chrome's viewer (or Perfetto) and TensorBoard's profiler plugin
read: FOLDER/WORKER.TIME.pt.trace.json.gz.
"""

import gzip
import logging
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from gpupack_kernels.loading import interpret
from gpupack_workloads.profile.digest import Digest, digest, table
from gpupack_workloads.profile.outcome import with_profile
from gpupack_workloads.profile.settings import Recording
from gpupack_workloads.profile.trace import read
from gpupack_workloads.results import Result

logger = logging.getLogger(__name__)

# Of 1 to 9: four times as fast as the default, for a file a third larger.
PACKING_LEVEL = 3
BLOCK_BYTES = 2**20


def record(recording: Recording, run: Callable[[], Result]) -> Result:
    """Run, write trace and table, return the result with the profile in it."""
    with profile(activities=activities()) as profiler:
        result = run()
    name = worker_name(recording.workload)
    seen = keep(profiler, recording.folder / f"{name}.{time.time_ns()}.pt.trace.json")
    if torch.cuda.is_available() and not seen.of_gpu:
        logger.warning("the profiler saw nothing on the GPU: this is the CPU's side of it")
    rows = seen.rows(recording.top)
    text = table(rows)
    (recording.folder / f"{name}.txt").write_text(text)
    logger.info("%s: trace and table are in %s\n%s", name, recording.folder, text)
    return with_profile(result, seen, recording)


def activities() -> list[ProfilerActivity]:
    """Return what can be recorded here; the profiler imports Triton."""
    if torch.cuda.is_available():
        return [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    interpret()
    return [ProfilerActivity.CPU]


def worker_name(workload: str) -> str:
    """Return a name for this process, unique within the job: TensorBoard shows it as a worker."""
    worker = os.environ.get("GPUPACK_WORKER_INDEX") or "0"
    return f"{workload}-{worker}-{os.environ.get('RANK', '0')}-{os.getpid()}"


def keep(profiler: profile, trace: Path) -> Digest:
    """Write the trace, packed in the end, and return what it says.

    Neither torch's own list of events is made for that nor is its handler for TensorBoard used: the
    one takes minutes for a million events, the other a minute to pack them line by line.
    """
    profiler.export_chrome_trace(str(trace))
    seen = digest(read(trace))
    with (
        trace.open("rb") as whole,
        gzip.open(f"{trace}.gz", "wb", compresslevel=PACKING_LEVEL) as packed,
    ):
        shutil.copyfileobj(whole, packed, BLOCK_BYTES)
    trace.unlink()
    return seen
