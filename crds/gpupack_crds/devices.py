# SPDX-License-Identifier: Apache-2.0
"""The annotation with the devices that a pod holds.

It is the source of truth for the holders of devices. The Binding writes it in the same request as
the node's name, the ledger rebuilds itself from it, and the agent injects exactly these devices.

    gpupack.dev/devices: [{"uuid":"GPU-5a…","percent":100,"memoryMiB":81559}]
"""

from collections.abc import Iterable
from typing import Annotated

import msgspec

from gpupack_crds.errors import DevicesAnnotationInvalid
from gpupack_crds.wire import Wire, described

WHOLE_PERCENT = 100

BYTES_PER_MIB = 1 << 20

MAX_MEMORY_MIB = 1 << 24
"""Upper limit of a GPU's memory: 16 TiB, more than any GPU has."""

HeldIsolation = Annotated[
    str,
    described(
        "Requested isolation, cooperative or limited: how a share is kept within its limits.",
        schema={"enum": ["cooperative", "limited"]},
    ),
]
"""Isolation of a share that is held; a whole GPU is exclusive.

The type is text, so that a value of a later release does not make the rest unreadable.
"""

MAX_UUID = 64
"""Maximum length.

NVIDIA's UUIDs have 40 characters, those of MIG slices of old drivers up to 48.
"""


class DeviceShare(Wire, frozen=True):
    """One GPU or a share of one, as held by one pod."""

    uuid: Annotated[str, described("The GPU's UUID.", min_length=1, max_length=MAX_UUID)]
    percent: Annotated[
        int, described("Percent of the GPU's compute; 100 is the whole GPU.", ge=1, le=100)
    ]
    memory_mib: Annotated[
        int,
        described(
            "Memory of the GPU, in MiB.", ge=1, le=MAX_MEMORY_MIB, schema={"format": "int64"}
        ),
    ]
    isolation: HeldIsolation = "cooperative"
    exclusive_to_namespace: Annotated[
        str,
        described(
            "The only namespace whose shares may be on the same GPU. Absent: any namespace.",
            max_length=63,
        ),
    ] = ""

    @property
    def whole(self) -> bool:
        """Whether the GPU is held exclusively."""
        return self.percent == WHOLE_PERCENT


def encode_devices(devices: Iterable[DeviceShare]) -> str:
    """Return the annotation's value."""
    return msgspec.json.encode(tuple(devices)).decode()


def decode_devices(annotation: str) -> tuple[DeviceShare, ...]:
    """Parse the annotation's value.

    Raises:
        DevicesAnnotationInvalid: it is not what `encode_devices` writes; no device is assumed.
    """
    try:
        devices = msgspec.json.decode(annotation, type=tuple[DeviceShare, ...])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise DevicesAnnotationInvalid(
            f"device annotation {annotation[:200]!r}: {error}; only a Binding by gpupack writes it"
        ) from error
    uuids = [device.uuid for device in devices]
    if not uuids or len(set(uuids)) != len(uuids):
        raise DevicesAnnotationInvalid(
            f"device annotation {annotation[:200]!r} must name each device once, at least one"
        )
    return devices
