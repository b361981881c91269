# SPDX-License-Identifier: Apache-2.0
"""The injection of a container with a limited share: its limits and the daemon's socket.

The container gets only the daemon's socket for programs, not the one that manages the daemon. The
limits are in variables, so a program can remove them and leave MPS; `guard` detects that.
"""

import dataclasses
from collections.abc import Mapping

from gpupack_agent.inventory.base import Injection, Mount
from gpupack_agent.mps.folder import MpsFolder
from gpupack_crds.devices import DeviceShare

CONTAINER_FOLDER = "/run/gpupack/mps"


def is_limited(share: DeviceShare) -> bool:
    """Tell whether the limits of a share must be enforced."""
    return not share.whole and share.isolation == "limited"


def limits_of(share: DeviceShare, thread_percent: int) -> Mapping[str, str]:
    """Return CUDA's variables for the limits; the one GPU of a container is its device 0."""
    return {
        "CUDA_MPS_PIPE_DIRECTORY": CONTAINER_FOLDER,
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(thread_percent),
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={share.memory_mib}M",
    }


def with_limits(
    injection: Injection, share: DeviceShare, folder: MpsFolder, thread_percent: int
) -> Injection:
    """Return the injection with the socket of the GPU's daemon and the limits of the share.

    Args:
        injection: the injection without limits.
        share: the limited share.
        folder: the folder with the daemons' sockets.
        thread_percent: percentage of the GPU's threads.
    """
    socket = Mount(str(folder.control(share.uuid)), f"{CONTAINER_FOLDER}/control")
    return dataclasses.replace(
        injection,
        mounts=(*injection.mounts, socket),
        environment={**injection.environment, **limits_of(share, thread_percent)},
    )
