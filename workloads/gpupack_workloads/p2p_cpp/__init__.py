# SPDX-License-Identifier: Apache-2.0
"""Copies between two GPUs in CUDA C++, by the API and by kernels, against the way through the host.

    peer.cu      the kernels: loads and stores in another GPU's memory, and latency
    plan         sizes, pieces, repeats
    runtime      devices, streams, events and memory of CUDA's runtime
    access       peer access, enabled and disabled again
    kernels      peer.cu, compiled for a GPU and loaded
    sides        two GPUs with what each needs
    staging      the way through pinned host memory, by two streams and events
    ways         every way to copy between the two
    checks       what arrived, byte by byte, and the memory around it
    speeds       times the ways, checks what was timed
    latency      how long one small access takes
    session      every pair, and the result

`p2p` tries the same links by torch and Triton, which enable access by themselves.
"""

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpupack_workloads.results import Result
from gpupack_workloads.settings import Options

SOURCE = Path(__file__).parent / "peer.cu"


@dataclass(frozen=True, kw_only=True)
class P2pCppOptions(Options):
    """Options of `p2p-cpp`; `size` is the bytes of the largest copy.

    Attributes:
        source: kernels to run instead of ours, of the same names and parameters.
        compiler: nvcc or nvrtc; None takes nvcc where there is one.
    """

    source: Path | None = None
    compiler: str | None = None


def run(options: P2pCppOptions) -> Result:
    """Run the workload; see `session.run`. Torch comes only now."""
    session: Any = importlib.import_module("gpupack_workloads.p2p_cpp.session")
    result: Result = session.run(options)
    return result
