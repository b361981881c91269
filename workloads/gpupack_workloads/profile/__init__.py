# SPDX-License-Identifier: Apache-2.0
"""Profiles any workload with torch's profiler or Nsight Systems.

intervals     lengths of overlapping times
trace         events of a profiler's trace file (no torch)
digest        use of time: top kernels, communication (no torch)
recorder      runs a workload under torch's profiler; in the processes of a gang, too
recorded_run  wraps a workload's run with the recorder (no torch)
nsight        runs a workload under nsys (no torch)
outcome       the result, made of the workload's and the digest (no torch)
"""

from gpupack_workloads.profile.nsight import run

__all__ = ["run"]
