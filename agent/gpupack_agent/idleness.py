# SPDX-License-Identifier: Apache-2.0
"""The time since which GPUs that pods hold have been idle.

The time starts when the GPU is first seen to run nothing. It starts again when something ran, when
the activity was unknown, or when other pods hold the GPU. It also starts again when the agent
restarts, because no agent looked in between. GPUNode records the result, so a component that
depends on it may restart.

GPUNode shows no time before the GPU has been idle for a while: a pod that alternates between work
and rest must not cause a write for each change.
"""

import dataclasses
import datetime as dt
from collections.abc import Iterable, Mapping

import msgspec

from gpupack_agent.holders import annotated_devices
from gpupack_agent.pods import PodView
from gpupack_crds.gpunode import GpuDevice
from gpupack_crds.times import format_time


@dataclasses.dataclass(frozen=True, slots=True)
class _Idle:
    since: dt.datetime
    holders: frozenset[str]


class Idleness:
    """The idle times of one node's GPUs.

    Args:
        quiet_seconds: the time for which a GPU must be idle before GPUNode shows it.
    """

    def __init__(self, *, quiet_seconds: float) -> None:
        self._quiet = dt.timedelta(seconds=quiet_seconds)
        self._idle: dict[str, _Idle] = {}

    def update(
        self,
        devices: Iterable[GpuDevice],
        busy: Mapping[str, bool],
        pods: Iterable[PodView],
        now: dt.datetime,
    ) -> tuple[GpuDevice, ...]:
        """Return the GPUs; those that have been idle for a while have the time since when.

        Args:
            devices: the node's GPUs.
            busy: whether anything runs on each real GPU, by UUID; missing: not known.
            pods: the node's pods.
            now: the API server's time.
        """
        holding = _holding(pods)
        idle: dict[str, _Idle] = {}
        for device in devices:
            held = holding.get(device.uuid, ())
            if held and _is_idle(device, busy, held):
                idle[device.uuid] = self._since(device.uuid, held, now)
        self._idle = idle
        return tuple(self._with_idle_since(device, now) for device in devices)

    def _since(self, uuid: str, held: Iterable[PodView], now: dt.datetime) -> _Idle:
        holders = frozenset(pod.uid for pod in held)
        before = self._idle.get(uuid)
        return before if before and before.holders == holders else _Idle(now, holders)

    def _with_idle_since(self, device: GpuDevice, now: dt.datetime) -> GpuDevice:
        idle = self._idle.get(device.uuid)
        since = None
        if idle is not None and now - idle.since >= self._quiet:
            since = format_time(idle.since)
        return msgspec.structs.replace(device, idle_since=since)


def _holding(pods: Iterable[PodView]) -> dict[str, list[PodView]]:
    """Return the pods by the GPUs that they hold; pods that have not started cannot use a GPU."""
    found: dict[str, list[PodView]] = {}
    for pod in pods:
        if pod.started and not pod.finished:
            for share in annotated_devices(pod):
                found.setdefault(share.uuid, []).append(pod)
    return found


def _is_idle(device: GpuDevice, busy: Mapping[str, bool], held: Iterable[PodView]) -> bool:
    if device.simulated:
        return all(pod.simulates_idle for pod in held)
    return busy.get(device.uuid) is False
