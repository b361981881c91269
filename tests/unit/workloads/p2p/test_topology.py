# SPDX-License-Identifier: Apache-2.0
from gpupack_workloads.p2p.topology import Topology, parse_matrix, parse_names

MATRIX = (
    "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV18\tSYS\t0-31\t0\t\tN/A\n"
    "GPU1\tNV18\t X \tPIX\t32-63\t1\t\tN/A\n"
    "NIC0\tSYS\tPIX\t X \t\t\t\t\n"
    "\nLegend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n"
)
NAMES = "0, GPU-aaaa\n1, GPU-bbbb\n"


def topology(matrix: str) -> Topology:
    return Topology(*parse_matrix(matrix), parse_names(NAMES))


def test_links_and_numa_nodes_are_found_by_uuid():
    found = topology(MATRIX)
    assert found.link("GPU-aaaa", "GPU-bbbb") == "NV18"
    assert (found.node("GPU-aaaa"), found.node("GPU-bbbb")) == ("0", "1")


def test_links_that_the_driver_does_not_report_are_unknown():
    assert topology(MATRIX).link("GPU-aaaa", "GPU-cccc") == "unknown"
    assert topology("").link("GPU-aaaa", "GPU-bbbb") == "unknown"
    assert topology("").node("GPU-aaaa") == "unknown"
