# SPDX-License-Identifier: Apache-2.0
"""Any workload under torch's profiler, or under Nsight Systems.

intervals   lengths of times that overlap
trace       what a profiler's trace file says happened (no torch)
digest      where the time went: top kernels, communication (no torch)
recorder    runs a workload under torch's profiler; in the processes of a gang, too
around      puts the recorder around another command (no torch)
nsight      runs a workload under nsys (no torch)
outcome     the result, made of the workload's and the digest (no torch)
"""

from gpupack_workloads.profile.nsight import run

__all__ = ["run"]
