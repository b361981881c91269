# SPDX-License-Identifier: Apache-2.0
"""A queue of one's own against core's: the shortest job first, and long ones give way."""
# ruff: noqa: INP001, T201  # a script that prints

from random import Random

from gpupack_placement import Device, DeviceUuid, MiB, Node, NodeName, Request
from gpupack_queue import Admit, Decisions, Preempt, PreemptionReason, RunningJob, Victim
from gpupack_queue import Job as Waiting
from gpupack_simulator import Job, JobId, Settings, Simulator, Situation


class ShortestFirst:
    """Of those who fit, the shortest; what will run for ten times as long is stopped for it."""

    def decide(self, situation: Situation) -> Decisions:
        """One decision at a time: it is asked again until there is none."""
        for job in sorted(situation.waiting, key=length):
            places = situation.plan(situation.cluster, job)
            if places is not None:
                return Decisions(admitted=(Admit(job.id, places),))
        return give_way(situation)


def length(job: Waiting) -> float:
    """How long it takes; those that say so come first."""
    return float("inf") if job.duration is None else job.duration


def give_way(situation: Situation) -> Decisions:
    """Stop one job for the shortest that waits, where that makes room enough."""
    if situation.stopping or not situation.waiting:
        return Decisions()
    short = min(situation.waiting, key=length)
    for running in situation.running:
        if length(running.job) < 10 * length(short):
            continue
        after = situation.cluster.overlay()
        for placement in running.placements:
            after.assume_free(placement)
        places = situation.plan(after, short)
        if places is not None:
            return Decisions(
                preemptions=(Preempt(short.id, (victim(running, situation),), places),)
            )
    return Decisions()


def victim(running: RunningJob, situation: Situation) -> Victim:
    """With what it loses."""
    return Victim(running.job.id, PreemptionReason.PRIORITY, running.loss(situation.now))


devices = tuple(Device(DeviceUuid(f"gpu-{n}"), n, "A100", MiB(81_920)) for n in range(8))
nodes = [Node(NodeName("node1"), devices)]
random = Random(2)  # noqa: S311  # not for secrets
jobs = [
    Job(
        JobId(f"job-{n}"),
        arrival=2 * n,
        request=Request(gpus=random.choice([1, 2, 4, 8])),
        duration=random.choice([1, 2, 3, 5, 40]),
    )
    for n in range(40)
]

for name, queue in {"fifo": None, "backfill": None, "shortest first": ShortestFirst()}.items():
    discipline = name if queue is None else "fifo"
    simulator = Simulator(nodes, jobs, "best-fit", Settings(discipline=discipline, queue=queue))
    simulator.advance(50)
    simulator.submit(Job(JobId("late"), arrival=50, request=Request(gpus=8), duration=1))
    simulator.cancel(JobId("job-30"))
    run = simulator.run()
    waits = {record.job.id: record.wait or 0 for record in run.jobs}
    mean = sum(waits.values()) / len(waits)
    stopped = sum(record.preemptions for record in run.jobs)
    print(f"{name:14} mean wait {mean:6.2f}, late {waits[JobId('late')]:g}, {stopped} stopped")
