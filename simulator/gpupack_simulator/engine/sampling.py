# SPDX-License-Identifier: Apache-2.0
"""Sampling of the cluster."""

from collections.abc import Iterable
from math import inf

from gpupack_placement import Cluster, NodeName, RequestMix
from gpupack_placement.fragmentation import Fragmentation
from gpupack_simulator.engine.causes import free_by_cause
from gpupack_simulator.engine.dispatcher import JobDispatcher
from gpupack_simulator.engine.recorder import Recorder, allocated_of, capacity_of
from gpupack_simulator.engine.settings import Sampling
from gpupack_simulator.job import Job
from gpupack_simulator.record import Sample


class Sampler:
    """The sampler of a run; mutable, belongs to one engine."""

    def __init__(
        self, cluster: Cluster, sampling: Sampling, capacity: int, jobs: Iterable[Job]
    ) -> None:
        """Create a sampler; `jobs`: all jobs of the run, for one measure under all policies."""
        self.samples: list[Sample] = []
        self._cluster, self._sampling = cluster, sampling
        self._measure = _measure(jobs) if sampling.fragmentation else None
        self._step = sampling.demand_step * capacity
        self._next_demand = self._step

    def take_if_due(self, dispatcher: JobDispatcher, recorder: Recorder) -> None:
        """Take a sample if the demand has grown enough, or after each instant."""
        if recorder.arrived >= self._next_demand or self._sampling.each_instant:
            self.take(dispatcher, recorder)

    def take(self, dispatcher: JobDispatcher, recorder: Recorder) -> None:
        """Take a sample; of several at one instant only the last is kept."""
        if self._step < inf:
            self._next_demand = (recorder.arrived // self._step + 1) * self._step
        if self.samples and self.samples[-1].time == dispatcher.now:
            self.samples.pop()
        self.samples.append(self.sample(dispatcher, recorder))

    def sample(self, dispatcher: JobDispatcher, recorder: Recorder) -> Sample:
        """Return a sample of the current state."""
        sampling = self._sampling
        causes = (
            free_by_cause(self._cluster, dispatcher.waiting_requests()) if sampling.causes else {}
        )
        measure = self._measure
        fragmented = None if measure is None else round(measure.of(self._cluster.arrays).sum())
        return Sample(
            time=dispatcher.now,
            arrived_milli=recorder.arrived,
            allocated_milli=recorder.allocated,
            capacity_milli=capacity_of(self._cluster),
            fragmented_milli=fragmented,
            queued_jobs=len(dispatcher.queue),
            running_jobs=len(dispatcher.running),
            free_by_cause=causes,
            allocated_by_node=allocated_by_node(self._cluster) if sampling.by_node else {},
        )


def _measure(jobs: Iterable[Job]) -> Fragmentation:
    mix = RequestMix.of((job.request, float(job.workers)) for job in jobs)
    return Fragmentation(mix.typical())


def allocated_by_node(cluster: Cluster) -> dict[NodeName, int]:
    """Return the milli-GPU in use on each node."""
    used = allocated_of(cluster).tolist()
    rows = ((node.name, cluster.row(node.name)) for node in cluster.nodes())
    return {name: used[row] for name, row in rows if row is not None}
