# SPDX-License-Identifier: Apache-2.0
"""A simulated day: the cost service counts its objects like the simulator."""

import itertools
import random

import pytest
from accounts import bound_pod, gpu_job

from gpupack_cost import Group, Prices, Tariff, Tariffs
from gpupack_crds.devices import DeviceShare
from gpupack_placement import DeviceUuid, MiB, MilliGpu, NodeName, Request, Share
from gpupack_simulator import Breakdown, Component, Job, JobId, Settings, Simulator, TimeUnit
from gpupack_simulator.output.cost import cost_lines

PRICES = {"H100": 2.5, "*": 1.0}
SECONDS = 86_400


def jobs(draw):
    """Draw whole GPUs, gangs and shares of three tenants; two in five are standalone pods."""
    for number in range(120):
        share = Share(MilliGpu(10 * draw.randrange(1, 90)), MiB(draw.randrange(1000, 60_000)))
        gpus = draw.choice((None, None, 1, 1, 2, 3, 4))
        gang = gpus is not None and draw.random() < 0.3
        kind = "pod" if not gang and draw.random() < 0.4 else "job"
        yield Job(
            JobId(f"{kind}-{number}"),
            float(draw.randrange(0, 80_000)),
            Request(share=share) if gpus is None else Request(gpus=gpus),
            2 if gang else 1,
            float(draw.randrange(30, 4_000)),
            tenant=draw.choice(("red", "green", "blue")),
        )


def attempts(run):
    """Return attempts by job: start, end (None: it runs) and devices by node."""
    held = {}
    for each in run.occupancy:
        share = DeviceShare(uuid=each.device, percent=each.milli // 10, memory_mib=0)
        of_job = held.setdefault(each.job, {}).setdefault((each.start, each.end), {})
        of_job.setdefault(each.node, []).append(share)
    return {job: sorted(found.items()) for job, found in held.items()}


def objects_of(run):
    """Return times with the object that appears or changes then, in order."""
    tenants = {record.job.id: record.job for record in run.jobs}
    for job, found in attempts(run).items():
        namespace, request = tenants[job].tenant, tenants[job].request
        memory = request.share.memory if request.share else 81_559
        for number in range(1, len(found) + 1):
            (start, end), nodes = found[number - 1]
            placed = tuple(
                (node, tuple(_sized(device, memory) for device in devices))
                for node, devices in nodes.items()
            )
            times = {"bound": start, "namespace": namespace}
            if job.startswith("pod"):
                ((node, devices),) = placed
                pod = {"on": node, "devices": devices, **times}
                yield start, "pods", bound_pod(f"{job}-{number}", **pod)
                if end is not None:
                    yield end, "pods", bound_pod(f"{job}-{number}", **pod, ended=end)
                continue
            before = [times for times, _ in found[: number - 1]]
            begun = gpu_job(
                job, attempts=[*before, (start, None)], placed=placed, namespace=namespace
            )
            yield start, "jobs", begun
            if end is not None:
                ended = [*before, (start, end)]
                yield (
                    end,
                    "jobs",
                    gpu_job(job, attempts=ended, phase="Pending", namespace=namespace),
                )


def _sized(device, memory):
    return DeviceShare(uuid=device.uuid, percent=device.percent, memory_mib=memory)


@pytest.fixture
def run(accounts):
    """Run the simulation: GPUs fail and a node is lost, so some jobs have several attempts."""
    broken = (
        Breakdown(Component(NodeName("a"), None), 20_000.0, 30_000.0),
        Breakdown(Component(NodeName("b"), DeviceUuid("GPU-b-1")), 50_000.0, 52_000.0),
    )
    settings = Settings(
        discipline="backfill",
        time_unit=TimeUnit.SECOND,
        until=float(SECONDS),
        breakdowns=broken,
    )
    nodes = list(accounts.cluster.nodes())
    return Simulator(nodes, jobs(random.Random(7)), "default", settings).run()


def test_the_sums_equal_those_of_the_simulator(accounts, run):
    tariffs = Tariffs.of([Tariff(0.0, "EUR", Prices(PRICES))])
    accounts.prices = PRICES
    accounts.restart(lose_file=True)
    events = sorted(objects_of(run), key=lambda each: each[0])
    for number, (moment, kind, item) in enumerate(events):
        if number % 40 == 39:
            accounts.restart()
        accounts.time = moment
        accounts.show(kind, item)
    accounts.at(SECONDS)
    assert len(events) > 200
    assert max(len(found) for found in attempts(run).values()) > 1
    for by in (Group.NAMESPACE, Group.MODEL):
        expected, found = cost_lines(run, by, tariffs), accounts.lines(by)
        assert [_figures(line) for line in found] == [_figures(line) for line in expected]
    by_job = cost_lines(run, Group.JOB, tariffs)
    expected = {line.job: _figures(line) for line in by_job if line.job.startswith("job")}
    found = accounts.lines(Group.JOB)
    assert {line.job: _figures(line) for line in found if line.job.startswith("job")} == expected


def test_each_namespaces_hours_equal_its_held_time(accounts, run):
    """The sums equal the simulator's record of the allocated capacity, for each hour."""
    for moment, kind, item in sorted(objects_of(run), key=lambda each: each[0]):
        accounts.time = moment
        accounts.show(kind, item)
    accounts.at(SECONDS)
    charged = sum(
        each.charged * ((run.ended if each.end is None else each.end) - each.start)
        for each in run.occupancy
    )
    hours = itertools.pairwise(range(0, SECONDS + 3600, 3600))
    by_hour = [accounts.seconds(Group.MODEL, since=a, until=b) for a, b in hours]
    assert sum(sum(each.values()) for each in by_hour) == pytest.approx(charged / 1000, abs=1.0)


def _figures(line):
    seconds = round(line.amounts.allocated / 1000)
    return line.tenant, line.model, seconds, pytest.approx(line.cost)
