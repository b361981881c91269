# SPDX-License-Identifier: Apache-2.0
"""Which limited shares are exceeded, or were left. Pure.

MPS holds each process to the memory of the share. The limit is the container's: two processes could
take double. So what all processes of a pod have of the GPU is summed, whether they are MPS' clients
or not; a process that is none has left the limits, whatever it takes.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator

from gpupack_agent.holders import Record
from gpupack_agent.mps.injection import is_limited
from gpupack_agent.mps.processes import DeviceProcess
from gpupack_crds.devices import BYTES_PER_MIB, DeviceShare

SLACK_MIB = 256
"""The driver counts by pages, and what a process has besides its allocations."""


@dataclasses.dataclass(frozen=True, slots=True)
class Excess:
    """A share that is exceeded or left.

    Attributes:
        record: of the container.
        share: what it has.
        used_mib: what its processes have of the GPU's memory.
        pids: these processes.
        has_left: one of them computes past MPS.
    """

    record: Record
    share: DeviceShare
    used_mib: int
    pids: tuple[int, ...]
    has_left: bool


def limited(records: Iterable[Record]) -> Iterator[tuple[Record, DeviceShare]]:
    """The limited shares that are held."""
    for record in records:
        for share in record.devices:
            if is_limited(share):
                yield record, share


def excesses(
    records: Iterable[Record],
    processes: Iterable[DeviceProcess],
    pod_of: Callable[[int], str | None],
) -> tuple[Excess, ...]:
    """The shares that are.

    Args:
        records: of live pods.
        processes: that use the GPUs now.
        pod_of: the UID of a process' pod.
    """
    by_holder: dict[tuple[str | None, str], list[DeviceProcess]] = {}
    for process in processes:
        by_holder.setdefault((pod_of(process.pid), process.uuid), []).append(process)
    found = (
        _excess(record, share, by_holder.get((record.uid, share.uuid), []))
        for record, share in limited(records)
    )
    return tuple(each for each in found if each)


def _excess(record: Record, share: DeviceShare, theirs: list[DeviceProcess]) -> Excess | None:
    used = sum(process.bytes for process in theirs) // BYTES_PER_MIB
    has_left = any(not process.is_client for process in theirs)
    if used <= share.memory_mib + SLACK_MIB and not has_left:
        return None
    pids = tuple(sorted(process.pid for process in theirs))
    return Excess(record, share, used, pids, has_left)
