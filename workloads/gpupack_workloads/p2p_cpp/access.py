# SPDX-License-Identifier: Apache-2.0
"""Peer access: a device may load and store in another's memory, while a block of code runs.

It is enabled for one direction at a time, for the whole process, and disabled by whom it was
enabled: where torch or another library has it already, it stays.
"""

import contextlib
from collections.abc import Iterator
from functools import partial

from gpupack_workloads.cuda_api import load, told
from gpupack_workloads.p2p_cpp.runtime import current, tidy

ALREADY = "cudaErrorPeerAccessAlreadyEnabled"


def can_access(accessor: int, owner: int) -> bool:
    """Whether the driver lets a device reach another's memory; its own it always can."""
    return accessor == owner or bool(told(load("runtime").cudaDeviceCanAccessPeer(accessor, owner)))


def both_can_access(one: int, other: int) -> bool:
    """Whether each of two devices can reach the other's memory."""
    return can_access(one, other) and can_access(other, one)


def native_atomics(accessor: int, owner: int) -> bool:
    """Whether atomic operations in the owner's memory are atomic for both, as over NVLink."""
    if accessor == owner:
        return True
    runtime = load("runtime")
    attribute = runtime.cudaDeviceP2PAttr.cudaDevP2PAttrNativeAtomicSupported
    return bool(told(runtime.cudaDeviceGetP2PAttribute(attribute, accessor, owner)))


def enable(accessor: int, owner: int) -> bool:
    """Map the owner's memory for the accessor; return whether it was not yet.

    Raises:
        Refused: it cannot be.
    """
    runtime = load("runtime")
    with current(accessor):
        (status,) = runtime.cudaDeviceEnablePeerAccess(owner, 0)
        if status.name == ALREADY:
            # Nobody else is to take this for the error of a call of theirs.
            runtime.cudaGetLastError()
            return False
        told((status,))
        return True


def disable(accessor: int, owner: int) -> None:
    """Unmap the owner's memory again.

    Raises:
        Refused: it cannot be.
    """
    with current(accessor):
        told(load("runtime").cudaDeviceDisablePeerAccess(owner))


@contextlib.contextmanager
def peer_access(one: int, other: int) -> Iterator[None]:
    """Let two devices reach each other's memory for as long as this lasts.

    Nothing is done for a device and itself.

    Raises:
        Refused: it cannot be enabled; what was, is disabled again.
    """
    with contextlib.ExitStack() as enabled:
        if one != other:
            for accessor, owner in ((one, other), (other, one)):
                if enable(accessor, owner):
                    enabled.callback(tidy, partial(disable, accessor, owner))
        yield
