# SPDX-License-Identifier: Apache-2.0
"""The ledger of this machine, from the configuration."""

import socket
from pathlib import Path
from typing import NamedTuple

import pynvml

from gpupack.config import GpuConfig
from gpupack.host.folder import HostFolder, default_folder
from gpupack.host.inventory import Gpus, SimulatedGpus
from gpupack.host.ledger import HostLedger
from gpupack.host.nvml import NvmlGpus
from gpupack_placement import NodeName, policy_named


class Host(NamedTuple):
    """This machine's GPUs, their ledger, and its folder."""

    gpus: Gpus
    folder: HostFolder
    ledger: HostLedger


def gpus_of(config: GpuConfig) -> Gpus:
    """Return the driver's GPUs, or simulated ones.

    Raises:
        ConfigInvalid: the simulated GPUs have another form.
    """
    simulated = config.this_machine.simulated_gpus
    return SimulatedGpus(simulated, config.gpu_memory_specs) if simulated else NvmlGpus(pynvml)


def open_host(config: GpuConfig, gpus: Gpus) -> Host:
    """Open the ledger; read and write nothing yet."""
    folder = HostFolder(Path(config.this_machine.folder or default_folder()).expanduser())
    policy = policy_named(config.this_machine.policy)
    node = NodeName(socket.gethostname())
    return Host(gpus, folder, HostLedger(folder, gpus, node=node, policy=policy))
