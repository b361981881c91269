# SPDX-License-Identifier: Apache-2.0
"""The Events about limited shares for owners of pods. Pods of other namespaces are not named."""

from collections.abc import Iterable

from gpupack_agent.holders import Record
from gpupack_agent.mps.excess import Excess
from gpupack_kubeclient.events import Said

EXCEEDED = "GpuShareExceeded"
ENDED = "GpuShareTerminated"
FAULT = "GpuSharePeerFault"


def exceeded(excess: Excess, *, seconds: float | None) -> Said:
    """Return the Event for a pod that exceeds its share.

    Args:
        excess: how the share is exceeded.
        seconds: the time until its processes are ended; None: they are not.
    """
    end = "" if seconds is None else f"; its processes are ended in {seconds:g} s unless this stops"
    return Said("Warning", EXCEEDED, f"{_describe(excess)}{end}")


def ended(excess: Excess) -> Said:
    """Return the Event for a pod whose processes were ended."""
    number = len(excess.pids)
    processes = "its process" if number == 1 else f"its {number} processes"
    return Said("Warning", ENDED, f"{_describe(excess)}; {processes} on this GPU were ended")


def made_others_fail(exited: Record, others: Iterable[Record]) -> Said:
    """Return the Event for a pod whose process ended and made others fail."""
    note = (
        "a process of this pod ended while its kernels ran, so MPS failed the work of other pods "
        f"on the same GPU: {_name_others(exited, others)}. End a program after its kernels have "
        "finished, for example in a handler of SIGTERM"
    )
    return Said("Warning", FAULT, note)


def failed_by_exit(failed: Record, exited: Iterable[Record]) -> Said:
    """Return the Event for a pod that failed because a process of another pod ended."""
    note = (
        "the pod's work on the GPU failed: a process of another pod with a share of the same GPU "
        f"ended while its kernels ran ({_name_others(failed, exited)})"
    )
    return Said("Warning", FAULT, note)


def failed_together(failed: Record, others: Iterable[Record]) -> Said:
    """Return the Event for a pod that failed together with others, one of which is at fault."""
    note = (
        "the pod's work on the GPU failed together with that of other pods with shares of the "
        f"same GPU: {_name_others(failed, others)}. A kernel of one of these pods caused it; MPS "
        "does not report which"
    )
    return Said("Warning", FAULT, note)


def _describe(excess: Excess) -> str:
    share = excess.share
    if excess.has_left_mps:
        return (
            f"a process of this pod uses GPU {share.uuid} without MPS, which limits its share "
            "(CUDA_MPS_PIPE_DIRECTORY was changed, or MPS did not run when the process started)"
        )
    return (
        f"the pod's processes use {excess.used_mib} MiB of GPU {share.uuid}; its share is "
        f"{share.memory_mib} MiB"
    )


def _name_others(to: Record, others: Iterable[Record]) -> str:
    found = {
        f"pod {each.name}" if each.namespace == to.namespace else "a pod of another namespace": None
        for each in others
    }
    return ", ".join(found) or "another pod"
