# SPDX-License-Identifier: Apache-2.0
"""Holders of GPUs."""

import msgspec


class HolderView(msgspec.Struct, frozen=True):
    """A pod's hold on one GPU or MIG slice.

    Attributes:
        job: GPUJob of the pod; empty: none.
        worker: worker of that job that has the GPU; None: the pod has no job.
        index: index of the GPU on its node; None: the node does not list it now.
        percent: percent of the GPU's time; 100: the whole GPU.
        memory_mib: memory of the GPU, in MiB.
        isolation: strict: no other holder is on it; limited or cooperative: a share of that kind.
    """

    namespace: str
    pod: str
    job: str
    worker: int | None
    node: str
    uuid: str
    index: int | None
    percent: int
    memory_mib: int
    isolation: str


class Holders(msgspec.Struct, frozen=True):
    """Holders by namespace, pod and UUID; `next` is empty where there are no more."""

    holders: tuple[HolderView, ...]
    next: str = ""
