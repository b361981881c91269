# SPDX-License-Identifier: Apache-2.0
"""Measures decide() of every policy, and the functions below it, on clusters of 8-GPU nodes.

    python benchmarks/core_decide.py [--sizes 100,1000,5000,20000] [--policies fgd,best-fit]
                                     [--decisions 3000] [--wall]
                                     [--json FILE]

Requests are drawn from 200 kinds, some frequent and some rare. After each decision the place is
taken and an older one is released, so the cluster stays four fifths full and every decision finds
changed rows. Only decide() is timed, by its thread's CPU time, which is the same on a busy machine
(--wall: by wall-clock time).

    decide     as it is called
    cold       with nothing remembered: a policy just informed, a kind of request never seen
    refuse     a request that fits nowhere, with its reasons
    plan_gang  8 workers of 4 GPUs
    roles      a leader of 1 GPU and 8 workers of 4 GPUs
    search     the same gang, by the search that runs where the policy finds no places for it
"""

import argparse
import json
import random
import statistics
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from time import perf_counter_ns, thread_time_ns

from gpupack_placement import (
    POLICIES,
    Cluster,
    DemandForecast,
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
    Policy,
    Request,
    RequestMix,
    Role,
    Share,
    decide,
    plan_gang,
    policy_named,
)
from gpupack_placement.role_search import RoleSearch

KINDS, TRIES = 200, 20
WITH_MODEL, SHARED = 0.2, 0.4
"""Fractions of request kinds: those for a model; those for a share."""
MODELS = ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "NVIDIA L40S", "Tesla T4")
MEMORY, CPU, RAM = MiB(81920), MilliCpu(128_000), MiB(1 << 20)
FULL = 0.8


def node(number: int) -> Node:
    """Return a node of eight GPUs in two NVLink cliques."""
    devices = tuple(
        Device(DeviceUuid(f"GPU-{number}-{i}"), i, MODELS[number % 4], MEMORY, i // 4, i // 4)
        for i in range(8)
    )
    return Node(NodeName(f"node-{number:05}"), devices, CPU, RAM)


def request(rng: random.Random) -> Request:
    """Return a drawn request: a share or whole GPUs, sometimes a model, with matching CPU."""
    models = (rng.choice(("A100", "H100", "L40S", "T4")),) if rng.random() < WITH_MODEL else ()
    gpus = rng.choice((0, 1, 1, 1, 2, 4, 8))
    ram = MiB(1024 * rng.randint(1, 64))
    if rng.random() < SHARED:
        share = Share(MilliGpu(rng.randrange(50, 1000, 10)), MiB(rng.choice((0, 8192))))
        return Request(share=share, models=models, cpu=MilliCpu(rng.randint(1, 8000)), memory=ram)
    cpu = MilliCpu(rng.randint(1000, 12_000) * max(gpus, 1))
    return Request(gpus=gpus, models=models, cpu=cpu, memory=ram)


class Workload:
    """A cluster in steady state and its request stream."""

    def __init__(self, nodes: int) -> None:
        self.rng = random.Random(1)  # noqa: S311
        self.cluster = Cluster(node(number) for number in range(nodes))
        kinds = [request(self.rng) for _ in range(KINDS)]
        weights = [1 / (1 + number) for number in range(KINDS)]
        self.mix = RequestMix.of(zip(kinds, weights, strict=True))
        self._demands = [d.request for d in self.mix.demands]
        self._weights = [d.weight for d in self.mix.demands]
        self._holders: deque[Holder] = deque()
        self._taken = 0
        for number in range(nodes):
            self._fill(node(number).name, until=FULL * (number + 1) * 8000)

    def _fill(self, name: NodeName, *, until: float) -> None:
        for _ in range(TRIES):
            if self._taken < until:
                request = self.next()
                answer = decide(self.cluster, request, POLICIES["first-fit"], candidates=[name])
                self.take(answer)

    def next(self) -> Request:
        """Return the next request."""
        return self.rng.choices(self._demands, self._weights)[0]

    def take(self, answer: object) -> None:
        """Take the place, and release older ones when the cluster is full."""
        if isinstance(answer, Placement):
            holder = Holder(str(self.rng.random()))
            self.cluster.take(holder, answer)
            self._holders.append(holder)
            self._taken += sum(grant.milli for grant in answer.devices)
        while self._taken > FULL * len(self.cluster) * 8000:
            back = self.cluster.give_back(self._holders.popleft())
            self._taken -= sum(grant.milli for grant in back.devices)


class Stopwatch:
    """Times calls and prints what they took, in microseconds."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self.results: dict[str, dict[str, float]] = {}

    def time(self, act: Callable[[], object]) -> tuple[float, object]:
        """Return the time of a call and its answer."""
        start = self._clock()
        answer = act()
        return (self._clock() - start) / 1000, answer

    def report(self, label: str, times: list[float]) -> None:
        """Print mean and percentiles in one line."""
        cuts = statistics.quantiles(times, n=100)
        found = {"mean": statistics.mean(times), "p50": cuts[49], "p99": cuts[98]}
        shown = "  ".join(f"{name} {value:8.0f}" for name, value in found.items())
        print(f"{label:<44} {shown}", flush=True)
        self.results[label] = found


def stream(load: Workload, policy: Policy, watch: Stopwatch) -> Iterator[float]:
    """Yield the time of each decision; each place is taken."""
    while True:
        request = load.next()
        took, answer = watch.time(lambda: decide(load.cluster, request, policy))  # noqa: B023
        load.take(answer)
        yield took


def cold(load: Workload, policy: Policy, watch: Stopwatch) -> Iterator[float]:
    """Yield the time of each decision as the first of its kind."""
    load.cluster.room.forget()
    for number, kind in enumerate(load.mix.demands):
        fresh = policy.informed(DemandForecast(load.mix))
        decide(load.cluster, Request(gpus=1, cpu=MilliCpu(number)), fresh)
        yield watch.time(lambda: decide(load.cluster, kind.request, fresh))[0]  # noqa: B023


def measure(size: int, policies: list[str], decisions: int, watch: Stopwatch) -> None:
    """Print all figures of one size."""
    load = Workload(size)
    for name in policies:
        informed = policy_named(name).informed(DemandForecast(load.mix))
        times = list(islice(stream(load, informed, watch), decisions + KINDS))[KINDS:]
        watch.report(f"decide     {size:6} nodes x 8  {name}", times)
        times = list(islice(cold(load, policy_named(name), watch), 40))
        watch.report(f"cold       {size:6} nodes x 8  {name}", times)
    best_fit, few = POLICIES["best-fit"], decisions // 20
    gang = Gang.of(8, Request(gpus=4, cpu=MilliCpu(1000)))
    leader, worker = Request(gpus=1, cpu=MilliCpu(1000)), Request(gpus=4, cpu=MilliCpu(1000))
    roles = Gang((Role("leader", 1, leader), Role("worker", 8, worker)))
    for label, act in (
        ("refuse   ", lambda: decide(load.cluster, Request(gpus=9), best_fit)),
        ("plan_gang", lambda: plan_gang(load.cluster, gang, best_fit)),
        ("roles    ", lambda: plan_gang(load.cluster, roles, best_fit)),
        ("search   ", lambda: RoleSearch(load.cluster, roles, load.cluster.among(None)).run()),
    ):
        times = [watch.time(act)[0] for _ in range(few)]
        watch.report(f"{label}  {size:6} nodes x 8  best-fit", times)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="100,1000,5000,20000")
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--decisions", type=int, default=3000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--wall", action="store_true")
    options = parser.parse_args()
    watch = Stopwatch(perf_counter_ns if options.wall else thread_time_ns)
    print("microseconds")
    for size in options.sizes.split(","):
        measure(int(size), options.policies.split(","), options.decisions, watch)
    if options.json:
        options.json.write_text(json.dumps(watch.results, indent=1))


if __name__ == "__main__":
    main()
