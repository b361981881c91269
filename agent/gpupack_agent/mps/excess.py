# SPDX-License-Identifier: Apache-2.0
"""The search for limited shares that are exceeded, or whose processes left MPS. Pure.

MPS limits each process to the memory of the share. But the limit applies to the container: two
processes could use double. So the memory of all processes of a pod on the GPU is summed, whether
they are clients of MPS or not. A process that is no client has left the limits, however little it
uses.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator

from gpupack_agent.holders import Record
from gpupack_agent.mps.injection import is_limited
from gpupack_agent.mps.processes import DeviceProcess
from gpupack_crds.devices import BYTES_PER_MIB, DeviceShare

SLACK_MIB = 256
"""The tolerance: the driver counts whole pages, and memory of a process beyond its allocations."""


@dataclasses.dataclass(frozen=True, slots=True)
class Excess:
    """A share that is exceeded, or one of whose processes left MPS.

    Attributes:
        record: the record of the container.
        share: the container's share.
        used_mib: memory of the GPU that the pod's processes use.
        pids: PIDs of these processes.
        has_left_mps: whether one of them uses the GPU without MPS.
    """

    record: Record
    share: DeviceShare
    used_mib: int
    pids: tuple[int, ...]
    has_left_mps: bool


def limited(records: Iterable[Record]) -> Iterator[tuple[Record, DeviceShare]]:
    """Iterate over the limited shares of some records."""
    for record in records:
        for share in record.devices:
            if is_limited(share):
                yield record, share


def excesses(
    records: Iterable[Record],
    processes: Iterable[DeviceProcess],
    pod_of: Callable[[int], str | None],
) -> tuple[Excess, ...]:
    """Return the shares that are exceeded.

    Args:
        records: records of live pods.
        processes: the processes that use the GPUs now.
        pod_of: returns the UID of a process's pod.
    """
    by_holder: dict[tuple[str | None, str], list[DeviceProcess]] = {}
    for process in processes:
        by_holder.setdefault((pod_of(process.pid), process.uuid), []).append(process)
    found = (
        _excess(record, share, by_holder.get((record.uid, share.uuid), []))
        for record, share in limited(records)
    )
    return tuple(each for each in found if each)


def _excess(record: Record, share: DeviceShare, of_share: list[DeviceProcess]) -> Excess | None:
    used = sum(process.bytes for process in of_share) // BYTES_PER_MIB
    has_left_mps = any(not process.is_client for process in of_share)
    if used <= share.memory_mib + SLACK_MIB and not has_left_mps:
        return None
    pids = tuple(sorted(process.pid for process in of_share))
    return Excess(record, share, used, pids, has_left_mps)
