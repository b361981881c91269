# SPDX-License-Identifier: Apache-2.0
"""The network interface that gloo uses.

gloo takes the address of the host's own name. In a node's network (`hostNetwork: true`) that is on
many systems a loopback address, under which no other node finds this one.
"""

import fcntl
import ipaddress
import logging
import os
import socket
import struct
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Final

from gpupack_workloads.distributed.rendezvous import address_of

logger = logging.getLogger(__name__)

VARIABLE: Final = "GLOO_SOCKET_IFNAME"
_SIOCGIFADDR: Final = 0x8915
_NAME_BYTES: Final = 15
_REQUEST: Final = struct.Struct("256s")
_ADDRESS: Final = slice(20, 24)
_IPV6: Final = Path("/proc/net/if_inet6")


def keep_gloo_off_loopback(
    address: str,
    environ: MutableMapping[str, str] = os.environ,
    resolve: Callable[[str], str] = address_of,
) -> None:
    """Set gloo's interface to that of an address if the host's name leads to a loopback address.

    Args:
        address: this worker's address, by which the others reach it.
        environ: what the user has set there stays.
        resolve: returns the address of a name.
    """
    if environ.get(VARIABLE) or _is_loopback(address):
        return
    try:
        usual = resolve(socket.gethostname())
    except OSError:
        usual = ""
    if usual and not _is_loopback(usual):
        return
    if name := interface_of(address):
        environ[VARIABLE] = name
        logger.info("gloo uses interface %s: the host's name leads to no other address", name)


def interface_of(address: str) -> str:
    """Return the name of the interface that has an address; empty: none has."""
    wanted = ipaddress.ip_address(address.partition("%")[0])
    if wanted.version == 6:  # noqa: PLR2004 - of IP
        rows = (line.split() for line in _lines(_IPV6))
        found = (row[-1] for row in rows if row and row[0] == wanted.exploded.replace(":", ""))
        return next(found, "")
    names = (name for _, name in socket.if_nameindex())
    return next((name for name in names if _address_of(name) == wanted.packed), "")


def _address_of(interface: str) -> bytes:
    """Return the first IPv4 address of an interface; empty: it has none."""
    request = _REQUEST.pack(interface.encode()[:_NAME_BYTES])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            return fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, request)[_ADDRESS]
        except OSError:
            return b""


def _lines(path: Path) -> list[str]:
    """Return a file's lines; none where the kernel has no IPv6."""
    return path.read_text().splitlines() if path.exists() else []


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
