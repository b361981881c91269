# SPDX-License-Identifier: Apache-2.0
"""Time decide() and plan_gang() on clusters of 8-GPU nodes, two thirds full.

python benchmarks/core_decide.py [--decisions 2000]
"""

import argparse
import random
import statistics
from collections.abc import Callable
from time import perf_counter_ns

from gpupack_core import (
    POLICIES,
    Cluster,
    Device,
    DeviceUuid,
    Gang,
    Holder,
    MiB,
    MilliCpu,
    MilliGpu,
    Node,
    NodeName,
    Placement,
    Request,
    Share,
    decide,
    plan_gang,
)

SIZES = (100, 1000, 1213, 5000)
CORE, GIB = MilliCpu(1000), MiB(1024)
REQUESTS = (
    Request(gpus=1, cpu=CORE, memory=GIB),
    Request(gpus=4, cpu=CORE, memory=GIB),
    Request(gpus=1, models=("A100",), cpu=CORE, memory=GIB),
    Request(share=Share(MilliGpu(300), MiB(8192)), cpu=CORE, memory=GIB),
)


def node(number: int) -> Node:
    """Eight GPUs in two NVLink cliques; every fourth node has another model."""
    model = "NVIDIA A100-SXM4-80GB" if number % 4 else "NVIDIA H100 80GB HBM3"
    devices = tuple(
        Device(DeviceUuid(f"GPU-{number}-{i}"), i, model, MiB(81920), i // 4, i // 4)
        for i in range(8)
    )
    return Node(NodeName(f"node-{number:05}"), devices, MilliCpu(128_000), MiB(1 << 20))


def filled(nodes: int, rng: random.Random) -> Cluster:
    """A cluster with two thirds of its GPU capacity taken by the requests above."""
    cluster = Cluster(node(number) for number in range(nodes))
    wanted, taken, policy = nodes * 8 * 1000 * 2 // 3, 0, POLICIES["worst-fit"]
    while taken < wanted:
        request = rng.choice(REQUESTS)
        answer = decide(cluster, request, policy)
        if isinstance(answer, Placement):
            cluster.take(Holder(str(taken)), answer)
        taken += request.milli
    return cluster


def times_us(count: int, act: Callable[[], object]) -> list[float]:
    """The time of each call in microseconds."""
    times = []
    for _ in range(count):
        start = perf_counter_ns()
        act()
        times.append((perf_counter_ns() - start) / 1000)
    return times


def report(label: str, times: list[float]) -> None:
    """Mean and percentiles in one line."""
    cuts = statistics.quantiles(times, n=100)
    print(
        f"{label:<44} mean {statistics.mean(times):8.0f}  p50 {cuts[49]:8.0f}  p99 {cuts[98]:8.0f}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=2000)
    decisions = parser.parse_args().decisions
    rng = random.Random(1)  # noqa: S311
    print("microseconds")
    for size in SIZES:
        cluster = filled(size, rng)
        for policy in POLICIES.values():
            ask = lambda policy=policy: decide(cluster, rng.choice(REQUESTS), policy)  # noqa: B023, E731
            report(f"decide     {size:5} nodes x 8  {policy.name}", times_us(decisions, ask))
        best_fit = POLICIES["best-fit"]
        report(
            f"refuse     {size:5} nodes x 8  best-fit",
            times_us(decisions // 10, lambda: decide(cluster, Request(gpus=9), best_fit)),  # noqa: B023
        )
        gang = Gang(8, REQUESTS[1])
        report(
            f"plan_gang  {size:5} nodes x 8  8 workers x 4 GPUs",
            times_us(decisions // 10, lambda: plan_gang(cluster, gang, best_fit)),  # noqa: B023
        )


if __name__ == "__main__":
    main()
