# SPDX-License-Identifier: Apache-2.0
"""The Events about limited shares for owners of pods. Pods of other namespaces are not named."""

from collections.abc import Iterable

from gpupack_agent.holders import Record
from gpupack_agent.mps.excess import Excess
from gpupack_kube.events import Said

EXCEEDED = "GpuShareExceeded"
ENDED = "GpuShareEnded"
FAULT = "GpuNeighboursFault"


def exceeded(excess: Excess, *, seconds: float | None) -> Said:
    """Return the Event for a pod that exceeds its share.

    Args:
        excess: how the share is exceeded.
        seconds: the time until its processes are ended; None: they are not.
    """
    end = "" if seconds is None else f"; they are ended in {seconds:g} s if that stays so"
    return Said("Warning", EXCEEDED, f"{_what(excess)}{end}")


def ended(excess: Excess) -> Said:
    """Return the Event for a pod whose processes were ended."""
    number = len(excess.pids)
    processes = "its process" if number == 1 else f"its {number} processes"
    return Said("Warning", ENDED, f"{_what(excess)}: {processes} there were ended")


def took_along(left: Record, others: Iterable[Record]) -> Said:
    """Return the Event for a pod whose process ended and made others fail."""
    note = (
        "a process of this pod ended in the midst of its kernels, and MPS failed the work of "
        f"others on the same GPU: {_named(left, others)}. End programs after their kernels have, "
        "such as by a handler of SIGTERM"
    )
    return Said("Warning", FAULT, note)


def was_taken_along(failed: Record, left: Iterable[Record]) -> Said:
    """Return the Event for a pod that failed because a process of another pod ended."""
    note = (
        f"its work on the GPU failed since a process of {_named(failed, left)}, which has a share "
        "of the same GPU, ended in the midst of its kernels"
    )
    return Said("Warning", FAULT, note)


def failed_together(failed: Record, others: Iterable[Record]) -> Said:
    """Return the Event for a pod that failed together with others, one of which is at fault."""
    note = (
        "its work on the GPU failed by a fault of this pod or of one that has a share of the same "
        f"GPU: {_named(failed, others)}. MPS fails all of them together, and does not tell whose "
        "kernel it was"
    )
    return Said("Warning", FAULT, note)


def _what(excess: Excess) -> str:
    share = excess.share
    if excess.has_left:
        return (
            f"a process of this pod uses GPU {share.uuid} past MPS, by which its share is limited "
            "(CUDA_MPS_PIPE_DIRECTORY was changed, or MPS was not there when it started)"
        )
    return (
        f"its processes have {excess.used_mib} MiB of GPU {share.uuid}, of which its share is "
        f"{share.memory_mib} MiB"
    )


def _named(to: Record, others: Iterable[Record]) -> str:
    found = {
        f"pod {each.name}" if each.namespace == to.namespace else "a pod of another namespace": None
        for each in others
    }
    return ", ".join(found) or "another pod"
