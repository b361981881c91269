# SPDX-License-Identifier: Apache-2.0
"""Measures how many jobs per second the simulator replays in Python and in machine code.

    python benchmarks/compiled_runs.py --traces FOLDER [--workload default] [--lifetimes 3]

Times are CPU time without compilation. Fails if any job's start, end, node or GPU differs.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Final

from gpupack_simulator import Run, experiments
from gpupack_simulator.experiments import Departing
from gpupack_simulator.inputs.openb import read_nodes, read_pods

POLICIES: Final = ("fgd", "default")
NEVER: Final = sys.maxsize


def timed(experiment: Departing, policy: str, *, compiled: bool) -> tuple[float, Run]:
    """Return the seconds and the run."""
    experiments.LONG = 0 if compiled else NEVER  # type: ignore[misc]
    begun = process_time()
    run = experiment.run(policy, 0)
    return process_time() - begun, replace(run, seconds_of_wall=0.0)


def main() -> None:
    """Print a line for each policy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--workload", default="default")
    parser.add_argument("--load", type=float, default=1.0)
    parser.add_argument("--lifetimes", type=float, default=3.0)
    options = parser.parse_args()
    nodes = read_nodes(options.traces / "openb_node_list_gpu_node.csv")
    pods = read_pods(options.traces / f"openb_pod_list_{options.workload}.csv")
    experiment = Departing(nodes, pods, options.load, warm_up=1.0, measured=options.lifetimes - 1.0)
    for policy in POLICIES:
        timed(replace(experiment, warm_up=0.5, measured=0.5), policy, compiled=True)
        slow, expected = timed(experiment, policy, compiled=False)
        fast, run = timed(experiment, policy, compiled=True)
        jobs = len(run.jobs)
        print(
            f"{policy:<8} {jobs} jobs: {jobs / slow:8.0f} a second in Python, {jobs / fast:8.0f} "
            f"compiled, ratio {slow / fast:.1f}",
            flush=True,
        )
        if run != expected:
            sys.exit(f"the two runs of {policy} differ")


if __name__ == "__main__":
    main()
