# SPDX-License-Identifier: Apache-2.0
"""Finds other workers, and the address by which they find us.

Waiting is ours, because torch gives up quickly when a name is unknown, and the name of a
pod appears in DNS only some time after the pod has its address.
"""

import logging
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from gpupack_workloads.errors import PeersMissing

logger = logging.getLogger(__name__)

DISCARD_PORT = 9
REMINDER_SECONDS = 10


@dataclass(frozen=True)
class Patience:
    """How long to wait for a name, and how.

    Attributes:
        deadline_seconds: after that the gang counts as broken.
        pause_seconds: between two questions.
        clock: seconds that only grow.
        sleep: how to pause.
    """

    deadline_seconds: float = 120
    pause_seconds: float = 0.25
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def address_of(host: str) -> str:
    """Return the first address of a host, of IPv4 or IPv6, as this host would choose.

    Raises:
        OSError: its name is not known.
    """
    found = socket.getaddrinfo(host, DISCARD_PORT, type=socket.SOCK_DGRAM)
    return str(found[0][4][0])


def wait_for_name(
    host: str,
    patience: Patience,
    resolve: Callable[[str], str] = address_of,
) -> str:
    """Return the address of a host as soon as its name is known."""
    remind_at = patience.clock()
    end = remind_at + patience.deadline_seconds
    while True:
        try:
            return resolve(host)
        except OSError as error:
            if patience.clock() >= end:
                raise PeersMissing(
                    f"the name {host} of a worker was unknown for"
                    f" {patience.deadline_seconds:.0f} s: {error}"
                ) from error
        if patience.clock() >= remind_at:
            logger.info("waiting for the name %s", host)
            remind_at = patience.clock() + REMINDER_SECONDS
        patience.sleep(patience.pause_seconds)


def own_address(peer: str) -> str:
    """Return the address of ours from which a peer's is reached; no packet is sent.

    Raises:
        PeersMissing: no way leads there, such as to an address of IPv6 from a host without.
    """
    (family, kind, _, _, address), *_ = socket.getaddrinfo(
        peer, DISCARD_PORT, type=socket.SOCK_DGRAM
    )
    with socket.socket(family, kind) as probe:
        try:
            probe.connect(address)
        except OSError as error:
            raise PeersMissing(
                f"this worker cannot reach {peer}, where the others meet: {error.strerror}"
            ) from error
        return str(probe.getsockname()[0])
