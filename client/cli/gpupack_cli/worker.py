# SPDX-License-Identifier: Apache-2.0
"""A worker of a GPUJob in its pod: the pod, and the container that has its GPUs.

Workers of one node may share a pod. Each then has its own container, named by its index:

  pod train-1-p0-x7k2p   worker-0  worker-1  worker-2  log-shipper
"""

import dataclasses
import datetime as dt

from gpupack_crds import names
from gpupack_crds.gpujob import GpuJobSpec
from gpupack_kubeclient.objects import ContainerTerminated, Pod


@dataclasses.dataclass(frozen=True, slots=True)
class Worker:
    """One worker of an attempt.

    Attributes:
        pod: last known state of the pod.
        container: name of the container that has its GPUs.
        index: its index in the job.
    """

    pod: Pod
    container: str
    index: int

    @property
    def key(self) -> tuple[str, str]:
        """The pod's UID and the container, which are unique to the worker."""
        return self.pod.metadata.uid, self.container

    @property
    def attempt(self) -> int:
        """The number of its attempt."""
        return _number(self.pod, names.ATTEMPT_LABEL)

    @property
    def exit_status(self) -> int | None:
        """The exit code of its container; None: it has not ended, or the code is unknown."""
        return None if self._terminated is None else self._terminated.exit_code

    @property
    def ended_at(self) -> dt.datetime | None:
        """When its container ended; None: it has not ended, or the time is unknown."""
        return None if self._terminated is None else self._terminated.finished_at

    @property
    def ended(self) -> bool:
        """Whether it prints nothing more."""
        return self.pod.finished or self.exit_status is not None

    @property
    def _terminated(self) -> ContainerTerminated | None:
        for each in self.pod.status.container_statuses:
            if each.name == self.container:
                return each.state.terminated
        return None


def workers_of(pod: Pod, spec: GpuJobSpec) -> tuple[Worker, ...]:
    """Return the workers of a pod of a job with this spec, by index.

    A pod with one worker has its index as a label, and its container any name.
    """
    limits = {each.name: each.resources.limits for each in pod.spec.containers}
    resource = spec.of_worker(_number(pod, names.INDEX_LABEL)).gpu_resource
    with_gpus = [name for name in limits if resource in limits[name]]
    indices = [names.worker_of_container(name) for name in with_gpus]
    if len(with_gpus) > 1 and None not in indices:
        found = zip(with_gpus, indices, strict=True)
        workers = [Worker(pod, name, index) for name, index in found if index is not None]
        return tuple(sorted(workers, key=lambda each: each.index))
    return (Worker(pod, _container(list(limits), with_gpus), _number(pod, names.INDEX_LABEL)),)


def _container(named: list[str], with_gpus: list[str]) -> str:
    """Return the container by the operator's rule: with GPUs, else `worker`, else the first."""
    if len(with_gpus) == 1:
        return with_gpus[0]
    return names.WORKER_CONTAINER if names.WORKER_CONTAINER in named or not named else named[0]


def _number(pod: Pod, label: str) -> int:
    text = pod.metadata.labels.get(label, "")
    return int(text) if text.isdecimal() else 0
