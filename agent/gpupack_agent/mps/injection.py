# SPDX-License-Identifier: Apache-2.0
"""What a container with a limited share gets: its limits, and the way to the daemon.

Of the daemon's sockets it gets the one for programs alone, not the one by which the daemon is
managed. The limits stand in variables, so a program can lift them and leave MPS; `guard` sees that.
"""

import dataclasses
from collections.abc import Mapping

from gpupack_agent.inventory.base import Injection, Mount
from gpupack_agent.mps.folder import MpsFolder
from gpupack_crds.devices import DeviceShare

CONTAINER_FOLDER = "/run/gpupack/mps"


def is_limited(share: DeviceShare) -> bool:
    """Whether something is to hold it to its limits."""
    return not share.whole and share.isolation == "limited"


def limits_of(share: DeviceShare, thread_percent: int) -> Mapping[str, str]:
    """The variables of CUDA that say them; the one GPU of a container is its device 0."""
    return {
        "CUDA_MPS_PIPE_DIRECTORY": CONTAINER_FOLDER,
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(thread_percent),
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={share.memory_mib}M",
    }


def with_limits(
    injection: Injection, share: DeviceShare, folder: MpsFolder, thread_percent: int
) -> Injection:
    """The same, with the daemon of the share's GPU, and so much of its threads."""
    socket = Mount(str(folder.control(share.uuid)), f"{CONTAINER_FOLDER}/control")
    return dataclasses.replace(
        injection,
        mounts=(*injection.mounts, socket),
        environment={**injection.environment, **limits_of(share, thread_percent)},
    )
