# SPDX-License-Identifier: Apache-2.0
"""The GPUs that a process sees."""

import re
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from gpupack.errors import ConfigInvalid

MAX_DEVICES: Final = 128
"""Maximum GPUs of one process, as of one node."""

INDEX: Final = re.compile(r"[0-9]{1,3}")
UUID: Final = re.compile(r"(GPU|MIG)-[A-Za-z0-9/-]{1,60}")

DeviceId = Annotated[
    str, msgspec.Meta(pattern=f"^({INDEX.pattern}|{UUID.pattern})$", max_length=64)
]
"""A UUID such as GPU-5a…, or an index as in nvidia-smi."""

Devices = Annotated[tuple[DeviceId, ...], msgspec.Meta(max_length=MAX_DEVICES)]


class SetupInvalid(ConfigInvalid):
    """A field of a setup is wrong, or contradicts another one.

    Attributes:
        field: its name.
        value: the given value.
        fix: what to give instead.
    """

    def __init__(self, field: str, value: object, fix: str) -> None:
        self.field, self.value, self.fix = field, str(value)[:128], fix
        super().__init__(f"{field} is {self.value!r}: {fix}")


class Visible(msgspec.Struct, frozen=True):
    """Known data of one GPU that the process sees.

    Attributes:
        id: its UUID or index.
        model: its product name, or part of it; empty: unknown.
        memory_mib: maximum of its memory for the process, in MiB; 0: unknown.
        total_mib: memory of the whole GPU, where the process has a share; 0: as `memory_mib`.
    """

    id: str
    model: str = ""
    memory_mib: int = 0
    total_mib: int = 0


def visible_environment(ids: Sequence[str]) -> dict[str, str]:
    """Return the variables with which CUDA shows only these GPUs, in this order.

    Raises:
        SetupInvalid: a GPU is listed twice, or UUIDs and indices are mixed, which CUDA treats as
            the end of the list.
    """
    if len(set(ids)) != len(ids):
        raise SetupInvalid("devices", ",".join(ids), "name each GPU once")
    by_index = [INDEX.fullmatch(each) is not None for each in ids]
    if any(by_index) and not all(by_index):
        raise SetupInvalid("devices", ",".join(ids), "name all by UUID, or all by index")
    environment = {"CUDA_VISIBLE_DEVICES": ",".join(ids)}
    if any(by_index):
        environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    return environment
