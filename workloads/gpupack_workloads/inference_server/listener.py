# SPDX-License-Identifier: Apache-2.0
"""Opens the server's socket before any work, because the address may be in use."""

import socket

from gpupack_workloads.errors import BadArgument


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that has the address; port 0 takes a free one.

    Raises:
        BadArgument: another has it, or it is not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise BadArgument(f"cannot listen at {host} port {port}: {error.strerror}") from error
    return listener
