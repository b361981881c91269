# SPDX-License-Identifier: Apache-2.0
"""Finds the addresses of other workers and of this one.

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
class WaitPolicy:
    """Deadline and interval of a wait for a name.

    Attributes:
        deadline_seconds: after that the gang counts as broken.
        pause_seconds: pause between two look-ups.
        clock: a monotonic clock in seconds.
        sleep: function that pauses.
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
    policy: WaitPolicy,
    resolve: Callable[[str], str] = address_of,
) -> str:
    """Return the address of a host as soon as its name is known."""
    remind_at = policy.clock()
    end = remind_at + policy.deadline_seconds
    while True:
        try:
            return resolve(host)
        except OSError as error:
            if policy.clock() >= end:
                raise PeersMissing(
                    f"the name {host} of a worker was unknown for"
                    f" {policy.deadline_seconds:.0f} s: {error}"
                ) from error
        if policy.clock() >= remind_at:
            logger.info("waiting for the name %s", host)
            remind_at = policy.clock() + REMINDER_SECONDS
        policy.sleep(policy.pause_seconds)


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
