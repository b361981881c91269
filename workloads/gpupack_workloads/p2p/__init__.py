# SPDX-License-Identifier: Apache-2.0
"""Direct access to another GPU's memory: checked byte by byte, timed for every pair.

    pattern     bytes that depend on their place
    pair        two GPUs
    access      one reads and modifies the other's memory: is every byte right?
    speeds      the ways between them, timed
    copies      a copy that is timed, then compared
    latency     how long a number takes
    through_host  the way by pinned host memory, to compare with
    topology    what links them
    simulated   without GPUs: two processes that share memory
    session     every pair, and the result

One process sees all GPUs of its container, as a program that uses several does.
"""

from gpupack_workloads.results import Result
from gpupack_workloads.settings import Options


def run(options: Options) -> Result:
    """Run the workload. The command line imports `options` from here, so torch comes only now."""
    from gpupack_workloads.p2p.session import survey  # noqa: PLC0415

    return survey(options)
