# SPDX-License-Identifier: Apache-2.0
"""`gpu_config.yaml`: the settings of the Python API.

    gpu_resource: {gpu: nvidia.com/gpu, nvidia: nvidia.com/gpu, amd: amd.com/gpu}
    default_gpu_resource_name: nvidia.com/gpu
    gpu_memory_specs: {V100: 32.0, H100: 80.0}   # GB, of simulated GPUs
    monitor_update_interval: 30                  # seconds
    resource_change_threshold: 0.05              # of all GPUs
    log_level: INFO
    allocation_timeout_seconds: 60
    cluster: {server: "", ca: "", namespace: "", hold_seconds: 3600, system_namespace: ""}
    this_machine: {folder: "", policy: best-fit, simulated_gpus: ""}

Every field may be left out. The file is the argument, GPUPACK_CONFIG, or `gpu_config.yaml` in the
current folder; variables of the environment take precedence over it.
"""

import logging
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

import msgspec
import yaml

from gpupack.errors import ConfigInvalid
from gpupack_placement import UnknownPolicy, policy_named

FILE_NAME: Final = "gpu_config.yaml"
MAX_FILE_BYTES: Final = 1 << 20
MAX_SHOWN_CHARACTERS: Final = 80
SYSTEM_NAMESPACE_FIELD: Final = "cluster.system_namespace"

ResourceName = Annotated[
    str, msgspec.Meta(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*)$")
]
Positive = Annotated[float, msgspec.Meta(gt=0)]

BackendName = Literal["auto", "cluster", "this-machine"]
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]


def _resources() -> dict[str, str]:
    return {
        "gpu": "nvidia.com/gpu",
        "nvidia": "nvidia.com/gpu",
        "amd": "amd.com/gpu",
        "intel": "intel.com/gpu",
        "npu": "huawei.com/npu",
    }


def _memory_specs() -> dict[str, float]:
    return {
        "T4": 16.0,
        "V100": 32.0,
        "A100": 80.0,
        "H100": 80.0,
        "H200": 141.0,
        "B200": 192.0,
        "RTX3090": 24.0,
        "RTX4090": 24.0,
        "A6000": 48.0,
        "A40": 48.0,
    }


class ClusterConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the backend `cluster`.

    Attributes:
        server: GPUPACK_SERVER; the REST API's https:// address; empty: it is searched for.
        ca: GPUPACK_CA; a file with CAs of the server's certificate; empty: the system's, in a pod
            and through kubectl those of the cluster.
        namespace: the namespace whose quota allocations count against; empty: the service account's
            own, or the kubeconfig's.
        hold_seconds: time after which an allocation ends by itself.
        system_namespace: GPUPACK_SYSTEM_NAMESPACE; where gpupack is installed; empty: it is
            searched for.
    """

    server: Annotated[str, msgspec.Meta(pattern=r"^$|^https?://\S+$")] = ""
    ca: str = ""
    namespace: str = ""
    hold_seconds: Annotated[int, msgspec.Meta(ge=60, le=7 * 24 * 3600)] = 3600
    system_namespace: Annotated[
        str, msgspec.Meta(pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$", max_length=63)
    ] = ""


class ThisMachineConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the backend `this-machine`.

    Attributes:
        folder: GPUPACK_HOST_FOLDER; absolute path of the ledger. Processes with other folders would
            allocate the same GPUs again. Empty: host.folder.default_folder().
        policy: the policy that chooses the GPU of a share.
        simulated_gpus: GPUPACK_SIMULATED_GPUS; such as 8xH100; empty: the driver's GPUs.
    """

    folder: Annotated[str, msgspec.Meta(pattern="^$|^/")] = ""
    policy: str = "best-fit"
    simulated_gpus: str = ""


class GpuConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file.

    Attributes:
        gpu_resource: resource names of each vendor's GPUs in a cluster.
        default_gpu_resource_name: resource name where no vendor is named.
        gpu_memory_specs: memory of simulated GPUs by model, in GB of 10^9 bytes.
        monitor_update_interval: seconds between two checks of watch().
        resource_change_threshold: fraction of all GPUs whose change watch() reports.
        log_level: level of the logger `gpupack`.
        backend: GPUPACK_BACKEND.
        allocation_timeout_seconds: maximum wait for an allocation.
    """

    gpu_resource: dict[str, ResourceName] = msgspec.field(default_factory=_resources)
    default_gpu_resource_name: ResourceName = "nvidia.com/gpu"
    gpu_memory_specs: dict[str, Positive] = msgspec.field(default_factory=_memory_specs)
    monitor_update_interval: Annotated[float, msgspec.Meta(gt=0, le=86400)] = 30.0
    resource_change_threshold: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.05
    log_level: LogLevel = "INFO"
    backend: BackendName = "auto"
    allocation_timeout_seconds: Annotated[float, msgspec.Meta(ge=0, le=7 * 24 * 3600)] = 60.0
    cluster: ClusterConfig = ClusterConfig()
    this_machine: ThisMachineConfig = ThisMachineConfig()

    def resource_name(self, vendor: str = "") -> str:
        """Return the resource name of this vendor's GPUs in a cluster.

        Raises:
            ConfigInvalid: `gpu_resource` does not have the vendor.
        """
        if not vendor:
            return self.default_gpu_resource_name
        if vendor not in self.gpu_resource:
            known = ", ".join(sorted(self.gpu_resource))
            raise ConfigInvalid(f"gpu_resource: there is no vendor {vendor!r}; use one of: {known}")
        return self.gpu_resource[vendor]


def load_config(path: Path | str | None, environ: Mapping[str, str]) -> GpuConfig:
    """Read the file, if there is one, and the environment.

    Args:
        path: path of the file; None: from the environment, else `gpu_config.yaml` if it exists.
        environ: variables; those named above take precedence over the file.

    Raises:
        ConfigInvalid: names path, value and the allowed values.
    """
    named = path or environ.get("GPUPACK_CONFIG")
    file = Path(named) if named else Path(FILE_NAME)
    document = _read(file) if named or file.exists() else {}
    sources = dict[str, str]()
    for variable, (section, field) in _VARIABLES.items():
        if value := environ.get(variable):
            inner = document.setdefault(section, {}) if section else document
            if isinstance(inner, dict):
                inner[field] = value
                sources[f"{section}.{field}" if section else field] = variable
    return parse_config(document, source=str(file), sources=sources)


def parse_config(
    document: Mapping[str, Any],
    *,
    source: str = FILE_NAME,
    sources: Mapping[str, str] = types.MappingProxyType({}),
) -> GpuConfig:
    """Check a document.

    Args:
        document: fields with their values.
        source: source of most fields, for messages.
        sources: source of the other fields, by their paths: variables of the environment.

    Raises:
        ConfigInvalid: names path, value and the allowed values.
    """
    try:
        config = msgspec.convert(document, GpuConfig)
    except msgspec.ValidationError as error:
        raise _invalid(document, str(error), source, sources) from error
    try:
        policy_named(config.this_machine.policy)
    except UnknownPolicy as error:
        raise ConfigInvalid(f"{source}: this_machine.policy: {error}") from error
    return config


def apply_log_level(config: GpuConfig) -> None:
    """Set the level of everything below the logger `gpupack`; handlers belong to the program."""
    logging.getLogger("gpupack").setLevel(config.log_level)


_VARIABLES: Final = {
    "GPUPACK_BACKEND": ("", "backend"),
    "GPUPACK_SERVER": ("cluster", "server"),
    "GPUPACK_CA": ("cluster", "ca"),
    "GPUPACK_NAMESPACE": ("cluster", "namespace"),
    "GPUPACK_SYSTEM_NAMESPACE": ("cluster", "system_namespace"),
    "GPUPACK_HOST_FOLDER": ("this_machine", "folder"),
    "GPUPACK_SIMULATED_GPUS": ("this_machine", "simulated_gpus"),
}


def _read(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigInvalid(f"{file}: cannot be read ({error.strerror})") from error
    if len(content) > MAX_FILE_BYTES:
        raise ConfigInvalid(f"{file}: it has more than {MAX_FILE_BYTES} bytes")
    try:
        document = yaml.safe_load(content)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigInvalid(f"{file}: not valid YAML: {error}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigInvalid(f"{file}: give fields with their values, not {_shown(document)}")
    return document


def _invalid(
    document: Mapping[str, Any], message: str, source: str, sources: Mapping[str, str]
) -> ConfigInvalid:
    """Convert msgspec's message, such as «Expected `float` > 0.0 - at `$.a.b`»."""
    what, _, place = message.partition(" - at `")
    path = place.removeprefix("key` in `").rstrip("`").removeprefix("$").removeprefix(".")
    if what.startswith("Object contains unknown field"):
        name = what.split("`")[1]
        at, known = f"{path}.{name}" if path else name, ", ".join(_fields_at(path))
        return ConfigInvalid(f"{source}: {at}: there is no such field; use one of: {known}")
    if path.endswith(_ANY_KEY):
        path = _first_invalid(document, path.removesuffix(_ANY_KEY))
    shown = _shown(_value_at(document, path))
    where = sources.get(path) or f"{source}: {path}"
    return ConfigInvalid(f"{where}: {shown}; {_FIXES.get(path.split('[')[0], what)}")


_ANY_KEY: Final = "[...]"
_RESOURCE_FIX: Final = "write a resource name such as nvidia.com/gpu"

_FIXES: Final = {
    "log_level": f"use one of: {', '.join(get_args(LogLevel))}",
    "backend": f"use one of: {', '.join(get_args(BackendName))}",
    "gpu_resource": _RESOURCE_FIX,
    "default_gpu_resource_name": _RESOURCE_FIX,
    "gpu_memory_specs": "write GB, a number above 0",
    "cluster.server": "write an address such as https://gpupack-api.NAMESPACE.svc",
    SYSTEM_NAMESPACE_FIELD: "write the name of the namespace where gpupack is installed",
    "monitor_update_interval": "write seconds, a number above 0 and up to 86400",
    "resource_change_threshold": "write a part of all GPUs, a number from 0 to 1",
    "allocation_timeout_seconds": "write seconds, a number from 0 to 604800",
    "this_machine.folder": "write a path that begins with /, the same for all processes",
    "cluster.hold_seconds": "write seconds, a whole number from 60 to 604800",
}


def _first_invalid(document: Mapping[str, Any], path: str) -> str:
    """Return the path of the key in a mapping that msgspec reports without its name."""
    values = _value_at(document, path)
    for key, value in values.items():
        try:
            msgspec.convert({path: {key: value}}, GpuConfig)
        except msgspec.ValidationError:
            return f"{path}[{key}]"
    return path


def _fields_at(path: str) -> tuple[str, ...]:
    kinds = {"cluster": ClusterConfig, "this_machine": ThisMachineConfig}
    return kinds.get(path, GpuConfig).__struct_fields__


def _value_at(document: Any, path: str) -> Any:
    for name in path.replace("[", ".").replace("]", "").split("."):
        if isinstance(document, Mapping) and name in document:
            document = document[name]
    return document


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}…"
