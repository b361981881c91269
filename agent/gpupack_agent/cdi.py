# SPDX-License-Identifier: Apache-2.0
"""The CDI specs with which the container runtime gives a container its devices.

There is one file for each set of device tokens, with one CDI device. It has two purposes: the
runtime reads the devices to inject, and a restarted agent reads which container was given which
devices, from the spec's annotations. The file is replaced at each container start, with a temporary
file and a rename, because the runtime may read it at any moment. The temporary name does not end in
.json, so the runtime ignores it.
"""

import contextlib
import logging
import os
import pathlib
from typing import Any

import msgspec

from gpupack_agent.errors import CdiUnwritable
from gpupack_agent.holders import Record
from gpupack_agent.inventory.base import Injection
from gpupack_crds import names
from gpupack_crds.devices import DeviceShare, decode_devices, encode_devices

log = logging.getLogger(__name__)

CDI_VERSION = "0.6.0"
"""The first CDI version with annotations; containerd 1.7 and later read it."""

PREFIX = "gpupack.dev-alloc-"
_RECORD = f"{names.GROUP}/record"


class _RecordAnnotation(msgspec.Struct, frozen=True):
    """The record as it is written into the spec's annotation."""

    tokens: tuple[str, ...]
    uid: str
    namespace: str
    name: str
    container: str
    devices: str
    peers: str = ""
    gang: str = ""
    memory_owner_uid: str = ""


def device_variables(devices: tuple[DeviceShare, ...], *, simulated: bool) -> dict[str, str]:
    """Return the variables that describe a container's devices.

    NVIDIA_VISIBLE_DEVICES=void disables NVIDIA's own runtime hook.
    """
    limits = (
        {}
        if devices[0].isolation == "cooperative"
        else {"GPUPACK_DEVICE_LIMITS": _enforced_by(simulated)}
    )
    return {
        "GPUPACK_DEVICES": ",".join(device.uuid for device in devices),
        "GPUPACK_DEVICE_PERCENT": str(devices[0].percent),
        "GPUPACK_DEVICE_MEMORY_MIB": str(devices[0].memory_mib),
        "GPUPACK_DEVICE_ISOLATION": "exclusive" if devices[0].whole else devices[0].isolation,
        "GPUPACK_SIMULATED": str(simulated).lower(),
        "NVIDIA_VISIBLE_DEVICES": "void",
        **limits,
    }


def _enforced_by(simulated: bool) -> str:  # noqa: FBT001 - private, with one caller
    """Return what enforces a share's limits, as GPUNode spells it."""
    return "Simulated" if simulated else "MPS"


def render_spec(record: Record, injection: Injection, *, simulated: bool) -> dict[str, Any]:
    """Build the spec of one container's devices."""
    kind, _, device = record.cdi_name.partition("=")
    variables = {**injection.environment, **device_variables(record.devices, simulated=simulated)}
    edits: dict[str, Any] = {"env": [f"{name}={value}" for name, value in variables.items()]}
    if injection.device_nodes:
        edits["deviceNodes"] = [
            {"path": path, "permissions": "rw", **_host_path(injection, path)}
            for path in injection.device_nodes
        ]
    if injection.mounts:
        edits["mounts"] = [
            {
                "hostPath": mount.host_path,
                "containerPath": mount.container_path,
                "options": ["rw" if mount.writable else "ro", "nosuid", "nodev", "bind"],
            }
            for mount in injection.mounts
        ]
    return {
        "cdiVersion": CDI_VERSION,
        "kind": kind,
        "annotations": {_RECORD: _encode_record(record)},
        "devices": [{"name": device, "containerEdits": edits}],
    }


def _host_path(injection: Injection, path: str) -> dict[str, str]:
    host_path = injection.host_nodes.get(path)
    return {"hostPath": host_path} if host_path else {}


def parse_record(spec: bytes) -> Record:
    """Read the record from a spec; raises ValueError if gpupack did not write the spec."""
    tree = msgspec.json.decode(spec)
    try:
        written = msgspec.json.decode(tree["annotations"][_RECORD], type=_RecordAnnotation)
        device = tree["devices"][0]["name"]
        kind = tree["kind"]
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"gpupack did not write this spec: {error!r} is missing") from error
    return Record(
        cdi_name=f"{kind}={device}",
        tokens=frozenset(written.tokens),
        uid=written.uid,
        namespace=written.namespace,
        name=written.name,
        container=written.container,
        devices=decode_devices(written.devices),
        peers=decode_devices(written.peers) if written.peers else (),
        gang=written.gang,
        memory_owner_uid=written.memory_owner_uid,
    )


def _encode_record(record: Record) -> str:
    written = _RecordAnnotation(
        tokens=tuple(sorted(record.tokens)),
        uid=record.uid,
        namespace=record.namespace,
        name=record.name,
        container=record.container,
        devices=encode_devices(record.devices),
        peers=encode_devices(record.peers) if record.peers else "",
        gang=record.gang,
        memory_owner_uid=record.memory_owner_uid,
    )
    return msgspec.json.encode(written).decode()


class SpecFolder:
    """The folder of CDI specs and the records in them.

    Args:
        path: the folder, created if it is missing; the runtime must be configured to read it.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._records: dict[str, Record] = {}

    @property
    def records(self) -> tuple[Record, ...]:
        """Return the records of all specs that were written and not yet removed."""
        return tuple(self._records.values())

    def load(self) -> None:
        """Read the specs of an earlier agent; unreadable ones are left in place and logged."""
        for path in sorted(self._path.glob(f"{PREFIX}*.json")):
            try:
                record = parse_record(path.read_bytes())
            except (OSError, ValueError) as error:
                log.error("cannot read CDI spec %s, so its holder is unknown: %s", path, error)  # noqa: TRY400 - the text suffices
                continue
            self._records[record.cdi_name] = record

    def write(self, record: Record, injection: Injection, *, simulated: bool) -> None:
        """Write a spec and remember the record.

        Raises:
            CdiUnwritable: the spec could not be written; the message names the file and the cause.
        """
        spec = render_spec(record, injection, simulated=simulated)
        path = self._file(record)
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            _replace(path, msgspec.json.encode(spec))
        except OSError as error:
            raise CdiUnwritable(f"cannot write CDI spec {path}: {error}") from error
        self._records[record.cdi_name] = record

    def remove(self, record: Record) -> None:
        """Remove the spec of a dead pod's container; raises CdiUnwritable."""
        try:
            self._file(record).unlink(missing_ok=True)
        except OSError as error:
            raise CdiUnwritable(f"cannot remove CDI spec {self._file(record)}: {error}") from error
        del self._records[record.cdi_name]

    def _file(self, record: Record) -> pathlib.Path:
        return self._path / f"{PREFIX}{record.cdi_name.partition('=')[2]}.json"


def _replace(path: pathlib.Path, content: bytes) -> None:
    """Replace a file as a whole, and sync it so that it survives a crash of the host."""
    temporary = path.with_suffix(".tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
