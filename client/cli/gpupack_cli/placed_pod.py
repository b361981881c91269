# SPDX-License-Identifier: Apache-2.0
"""The place of a pod, from its object: its node, its GPUs, and since when."""

import datetime as dt
from collections.abc import Iterator
from typing import Self

import msgspec

from gpupack_cli.text import plain
from gpupack_crds import names
from gpupack_crds.devices import WHOLE_PERCENT, DeviceShare, decode_devices
from gpupack_crds.errors import DevicesAnnotationInvalid
from gpupack_kubeclient.objects import Pod


class PlacedPod(msgspec.Struct, frozen=True):
    """A pod that has a node.

    Attributes:
        title: namespace and name.
        phase: phase of its status.
        node: node where it runs, or ran.
        gpus: UUIDs, those of shares with their percent; empty: no annotation names any.
        since: when it was bound; empty: its conditions do not have it.
        job: GPUJob of the worker; empty: it is a standalone pod.
    """

    title: str
    phase: str
    node: str
    gpus: tuple[str, ...] = ()
    since: str = ""
    job: str = ""

    @classmethod
    def of(cls, pod: Pod) -> Self:
        """Return the place of a pod."""
        bound = (each for each in pod.status.conditions if each.type == "PodScheduled")
        at = next((each.last_transition_time for each in bound), None) or pod.status.start_time
        return cls(
            title=f"{pod.metadata.namespace}/{pod.metadata.name}",
            phase=pod.status.phase,
            node=pod.spec.node_name,
            gpus=tuple(map(_gpu, _devices(pod))),
            since=f"{at.astimezone(dt.UTC):%Y-%m-%dT%H:%M:%SZ}" if at else "",
            job=pod.metadata.labels.get(names.JOB_LABEL, ""),
        )

    @property
    def lines(self) -> Iterator[str]:
        """The place in sentences."""
        ended = self.phase in {"Succeeded", "Failed"}
        since = f" {'from' if ended else 'since'} {self.since}" if self.since else ""
        where = f"it was on {plain(self.node)}" if ended else f"on {plain(self.node)}"
        yield f"pod {plain(self.title)} is {plain(self.phase)}: {where}{since}"
        if self.gpus:
            given = "  GPUs that it has released: " if ended else "  GPUs: "
            yield f"{given}{plain(', '.join(self.gpus))}"
        else:
            yield "  GPUs: none from gpupack; on observed nodes another device plugin assigns them"
        if self.job:
            yield f"  It is a worker of GPUJob {plain(self.job)}: gpupack explain {plain(self.job)}"


def _devices(pod: Pod) -> tuple[DeviceShare, ...]:
    annotation = pod.metadata.annotations.get(names.DEVICES_ANNOTATION)
    try:
        return decode_devices(annotation) if annotation else ()
    except DevicesAnnotationInvalid:
        return ()


def _gpu(device: DeviceShare) -> str:
    return device.uuid if device.percent >= WHOLE_PERCENT else f"{device.uuid} ({device.percent}%)"
