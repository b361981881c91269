# SPDX-License-Identifier: Apache-2.0
"""A table of contents of what the operator listens to.

What an event says is not looked at; it only tells which GPUJob to look at.
"""

from typing import Any

from gpupack_crds import names
from gpupack_crds.kinds import GPUNODES
from gpupack_kube.client import Api
from gpupack_kube.objects import Object
from gpupack_kube.reflector import Reflector
from gpupack_kube.resources import JOBS, PODS, Resource
from gpupack_operator.hearing import Ear
from gpupack_operator.index import Index
from gpupack_operator.waitlist import Key
from gpupack_operator.world import READABLE_GPUJOBS, ReadableGpuJob, Seen, World

ANY_GPUNODES = Resource(GPUNODES.prefix, GPUNODES.plural, Object)
OURS = {"labelSelector": names.JOB_LABEL}


class Bell:
    """A reflector's store that keeps nothing: GPUs may be free now that were not."""

    def __init__(self, ear: Ear) -> None:
        self._ear = ear

    def replace(self, _: list[Object]) -> None:
        """A list came."""
        self._ear.freed()

    def upsert(self, _: Object) -> None:
        """A node's GPUs changed."""
        self._ear.freed()

    def remove(self, _: Object) -> None:
        """A node is gone."""
        self._ear.freed()


def reflectors(api: Api, world: World, ear: Ear, *, namespace: str) -> tuple[Reflector[Any], ...]:
    """Everything that is watched; `world` is filled by it, `ear` hears of it."""
    gpujobs: Index[ReadableGpuJob, Seen] = Index(_name_of, ReadableGpuJob.seen, ear.gpujob)
    jobs: Index[Any, Any] = Index(_gpujob_of, lambda job: job, ear.job)
    pods: Index[Any, Any] = Index(_gpujob_of, lambda pod: pod, ear.pod)
    world.gpujobs, world.jobs, world.pods = gpujobs, jobs, pods
    return (
        Reflector(api, READABLE_GPUJOBS, gpujobs, namespace=namespace),
        Reflector(api, JOBS, jobs, namespace=namespace, selectors=OURS),
        Reflector(api, PODS, pods, namespace=namespace, selectors=OURS),
        Reflector(api, ANY_GPUNODES, Bell(ear)),
    )


def _name_of(job: Object) -> Key:
    return Key(*job.key)


def _gpujob_of(child: Object) -> str:
    return child.metadata.labels.get(names.JOB_UID_LABEL, "")
