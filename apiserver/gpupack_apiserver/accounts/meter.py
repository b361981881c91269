# SPDX-License-Identifier: Apache-2.0
"""Measurements over time: usage of held GPUs, and unheld GPUs.

    used    milli-GPU held x seconds x busy share of the GPU
    energy  power of the GPU x seconds x the part of all that is held of it
    unheld  each GPU x seconds, less what is held of it

A GPU without a reading adds to neither: unknown is not idle. Time in which this process did not
measure, because it was stopped or its data was old, is not counted at all.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from gpupack_apiserver.accounts.claim import Claim, HeldGpu
from gpupack_apiserver.accounts.readings import Readings
from gpupack_apiserver.accounts.store import CapacityKey, Unheld
from gpupack_apiserver.accounts.usage_recorder import UsageRecorder
from gpupack_cost import Amounts, Key, Tariffs, charge_of_grant, hour_of, model_label
from gpupack_placement import WHOLE_GPU, Cluster, Device, Grant, Node

MAX_GAP_INTERVALS: Final = 3.0
"""Maximum gap between two measurements, in intervals: a longer one is unknown."""


class Meter:
    """A periodic measurement.

    Args:
        recorder: gets the results.
        cluster: the GPUs of the cluster.
        readings: readings of the GPUs.
        seconds: interval.
        monotonic: returns monotonic seconds.
    """

    def __init__(
        self,
        recorder: UsageRecorder,
        cluster: Cluster,
        readings: Readings,
        *,
        seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._recorder, self._cluster = recorder, cluster
        self._readings, self.seconds, self._monotonic = readings, seconds, monotonic
        self._measured_at: float | None = None

    async def run(self) -> None:
        """Measure repeatedly, without end."""
        while True:
            self.measure()
            await asyncio.sleep(self.seconds)

    def measure(self) -> None:
        """Count the time since the last measurement, if it is not too long ago."""
        at, before = self._monotonic(), self._measured_at
        self._measured_at = at if self._recorder.is_fresh() else None
        if self._measured_at is None or before is None:
            return
        seconds = at - before
        if not 0 < seconds <= self.seconds * MAX_GAP_INTERVALS:
            return
        now, claims = self._recorder.now(), list(self._recorder.tracker.open_claims())
        tariffs = self._recorder.tariffs
        self._recorder.flush(
            measured=self._measured(claims, now, seconds, tariffs),
            unheld=self._unheld(claims, now, seconds, tariffs),
        )

    def _measured(
        self, claims: list[Claim], now: float, seconds: float, tariffs: Tariffs
    ) -> dict[Key, Amounts]:
        on_gpu = Counter[str]()
        for claim in claims:
            for held in claim.held:
                on_gpu[held.uuid] += held.milli
        sums: dict[Key, Amounts] = {}
        for claim in claims:
            for held in claim.held:
                lasted = min(seconds, now - claim.start)
                amounts = self._amounts(claim.node, held, on_gpu[held.uuid], lasted)
                if amounts is not None:
                    key = _key(claim, held, now, tariffs)
                    sums[key] = sums.get(key, Amounts()) + amounts
        return sums

    def _amounts(self, node: str, held: HeldGpu, on_gpu: int, seconds: float) -> Amounts | None:
        reading = self._readings.get(node, held.uuid) if held.uuid else None
        if reading is None or seconds <= 0:
            return None
        milli_seconds = held.milli * seconds
        busy, power = reading.busy_percent, reading.power_watts
        return Amounts(
            measured=0.0 if busy is None else milli_seconds,
            used=0.0 if busy is None else milli_seconds * min(max(busy, 0.0), 100.0) / 100.0,
            metered=0.0 if power is None else milli_seconds,
            joules=0.0 if power is None else max(power, 0.0) * seconds * held.milli / on_gpu,
        )

    def _unheld(
        self, claims: list[Claim], now: float, seconds: float, tariffs: Tariffs
    ) -> dict[CapacityKey, Unheld]:
        by_uuid, by_node = Counter[str](), Counter[tuple[str, str]]()
        for claim in claims:
            for held in claim.held:
                if held.uuid:
                    by_uuid[held.uuid] += held.milli
                else:
                    by_node[claim.node, held.model] += held.milli
        found: dict[CapacityKey, Unheld] = {}
        hour, tariff = hour_of(now), tariffs.number_at(now)
        for node in self._cluster.nodes():
            for device, model, free in _free(node, by_uuid, by_node):
                key = CapacityKey(hour, tariff, model)
                added = self._unheld_gpu(node, device, free, seconds)
                before = found.get(key, Unheld())
                found[key] = Unheld(*(a + b for a, b in zip(before, added, strict=True)))
        return found

    def _unheld_gpu(self, node: Node, device: Device, free: int, seconds: float) -> Unheld:
        is_usable = device.health.takes_work and node.ready and not node.cordoned
        reading = self._readings.get(node.name, device.uuid) if free == WHOLE_GPU else None
        power = reading.power_watts if reading else None
        return Unheld(
            usable=free * seconds if is_usable else 0.0,
            unusable=0.0 if is_usable else free * seconds,
            metered=0.0 if power is None else free * seconds,
            joules=0.0 if power is None else power * seconds,
        )


def _free(
    node: Node, by_uuid: Counter[str], by_node: Counter[tuple[str, str]]
) -> Iterator[tuple[Device, str, int]]:
    """Yield milli-GPU of each device that is not held, with the label of its model."""
    for device in node.devices:
        model = model_label(device.model, device.memory)
        whole = Grant(device.uuid, WHOLE_GPU, device.memory)
        milli = min(charge_of_grant(whole, device, node.devices), WHOLE_GPU)
        unnamed = min(by_node[node.name, model], milli)
        by_node[node.name, model] -= unnamed
        yield device, model, max(milli - by_uuid[device.uuid] - unnamed, 0)


def _key(claim: Claim, held: HeldGpu, now: float, tariffs: Tariffs) -> Key:
    return Key(
        hour_of(now),
        tariffs.number_at(now),
        claim.namespace,
        claim.cohort,
        claim.job,
        held.model,
    )
