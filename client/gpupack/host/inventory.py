# SPDX-License-Identifier: Apache-2.0
"""The GPUs of this machine, real or simulated."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from gpupack.errors import ConfigInvalid
from gpupack.training_config import BYTES_PER_GB, BYTES_PER_MIB
from gpupack.views import SIMULATED_UUID
from gpupack_placement import Device, DeviceUuid, MiB, matches_model

MAX_SHARES: Final = 20
"""Maximum shares of one GPU, as in a cluster."""

MAX_SIMULATED: Final = 128
UNKNOWN_MEMORY_GB: Final = 16.0
_SIMULATED = re.compile(r"(\d+)\s*x\s*(?!.*\W\d+\s*x\s*[A-Za-z])([A-Za-z][\w ./-]*)")
"""Form of one number and model: the name contains no further number and model."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """The GPUs at one moment.

    Attributes:
        devices: GPUs by index.
        simulated: a configuration names them, and they do not exist.
        users: PIDs of processes that use a GPU now, by its UUID, from the driver.
        missing: why there are no GPUs.
    """

    devices: tuple[Device, ...]
    simulated: bool = False
    users: Mapping[str, frozenset[int]] = field(default_factory=dict)
    missing: str = ""


class Gpus(Protocol):
    """A source of the inventory."""

    def read(self) -> Inventory:
        """Return the present inventory.

        Raises:
            InventoryUnavailable: the driver exists and does not answer.
        """

    def close(self) -> None:
        """Close the driver."""


class SimulatedGpus:
    """GPUs that do not exist, to try programs and for tests.

    Args:
        text: number and model, such as `8xH100`.
        memory_gb: memory by model; other models have UNKNOWN_MEMORY_GB.

    Raises:
        ConfigInvalid: the text has another form.
    """

    def __init__(self, text: str, memory_gb: Mapping[str, float]) -> None:
        found = _SIMULATED.fullmatch(text.strip())
        if not found or not 1 <= int(found[1]) <= MAX_SIMULATED:
            raise ConfigInvalid(
                f"simulated GPUs: {text!r}; write a number from 1 to {MAX_SIMULATED}, x and "
                "one model, such as 8xH100"
            )
        known = (gb for model, gb in memory_gb.items() if matches_model(model, found[2]))
        memory = next(known, UNKNOWN_MEMORY_GB) * BYTES_PER_GB / BYTES_PER_MIB
        self._inventory = Inventory(
            devices=tuple(
                Device(
                    uuid=DeviceUuid(f"{SIMULATED_UUID}{index}"),
                    index=index,
                    model=found[2],
                    memory=MiB(round(memory)),
                    clique=0,
                    max_shares=MAX_SHARES,
                )
                for index in range(int(found[1]))
            ),
            simulated=True,
        )

    def read(self) -> Inventory:
        """Return the inventory, which does not change."""
        return self._inventory

    def close(self) -> None:
        """Do nothing: nothing is open."""
