# SPDX-License-Identifier: Apache-2.0
"""What the command line asks of `p2p`."""

from dataclasses import dataclass

from gpupack_workloads.settings import Options


@dataclass(frozen=True, kw_only=True)
class P2pOptions(Options):
    """Options of `p2p`; `size` is a buffer in bytes."""
