# SPDX-License-Identifier: Apache-2.0
"""Peer access: a device may load and store in another's memory, while a block of code runs.

It is enabled for one direction at a time, for the whole process. Only the context that enabled it
disables it: if torch or another library has enabled it already, it stays.
"""

import contextlib
from collections.abc import Iterator
from functools import partial

from gpupack_workloads.cuda_api import check_status, load
from gpupack_workloads.p2p_cpp.runtime import clean_up, current

ALREADY = "cudaErrorPeerAccessAlreadyEnabled"


def can_access(accessor: int, owner: int) -> bool:
    """Return whether a device can access another's memory; it can always access its own."""
    return accessor == owner or bool(
        check_status(load("runtime").cudaDeviceCanAccessPeer(accessor, owner))
    )


def both_can_access(one: int, other: int) -> bool:
    """Return whether each of two devices can access the other's memory."""
    return can_access(one, other) and can_access(other, one)


def native_atomics(accessor: int, owner: int) -> bool:
    """Return whether atomics in the owner's memory are atomic for both, as over NVLink."""
    if accessor == owner:
        return True
    runtime = load("runtime")
    attribute = runtime.cudaDeviceP2PAttr.cudaDevP2PAttrNativeAtomicSupported
    return bool(check_status(runtime.cudaDeviceGetP2PAttribute(attribute, accessor, owner)))


def enable(accessor: int, owner: int) -> bool:
    """Map the owner's memory for the accessor; return whether it was not yet.

    Raises:
        Refused: it cannot be.
    """
    runtime = load("runtime")
    with current(accessor):
        (status,) = runtime.cudaDeviceEnablePeerAccess(owner, 0)
        if status.name == ALREADY:
            # A later caller must not get this error for a call of its own.
            runtime.cudaGetLastError()
            return False
        check_status((status,))
        return True


def disable(accessor: int, owner: int) -> None:
    """Unmap the owner's memory again.

    Raises:
        Refused: it cannot be.
    """
    with current(accessor):
        check_status(load("runtime").cudaDeviceDisablePeerAccess(owner))


@contextlib.contextmanager
def peer_access(one: int, other: int) -> Iterator[None]:
    """Let two devices reach each other's memory for as long as this lasts.

    For the same device it does nothing.

    Raises:
        Refused: it cannot be enabled; what was, is disabled again.
    """
    with contextlib.ExitStack() as enabled:
        if one != other:
            for accessor, owner in ((one, other), (other, one)):
                if enable(accessor, owner):
                    enabled.callback(clean_up, partial(disable, accessor, owner))
        yield
