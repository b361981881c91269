# SPDX-License-Identifier: Apache-2.0
"""The choice of a program's backend, and its manager.

GPUPACK_BACKEND, `backend`          that one
a server is named                   the cluster
GPUs are simulated, or NVML has any this machine
in a pod, or there is a kubeconfig  the cluster
otherwise                           this machine, which has no GPUs
"""

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gpupack.async_manager import AsyncGPUResourceManager
from gpupack.backend import Backend
from gpupack.cluster.endpoint import in_pod
from gpupack.config import GpuConfig, apply_log_level, load_config
from gpupack.errors import ConfigInvalid, InventoryUnavailable, SimulatedGpuWarning, warn
from gpupack.host.backend import HostBackend
from gpupack.host.inventory import Gpus
from gpupack.host.opening import gpus_of, open_host
from gpupack.manager import GPUResourceManager

CLUSTER: Final = "cluster"
THIS_MACHINE: Final = "this-machine"


def open_manager(
    config: GpuConfig | Path | str | None = None,
    *,
    backend: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> GPUResourceManager:
    """Return a manager of the caller's own, which the caller has to close.

    Args:
        config: the settings, or their file; None: `gpu_config.yaml`, if it exists.
        backend: `cluster` or `this-machine`; None: as configured.
        environ: variables; None: those of this process.

    Raises:
        ConfigInvalid: names path, value and the allowed values.
        ServerNotFound: the backend is the cluster's, and its address is not known.
    """
    variables = os.environ if environ is None else environ
    settings = config if isinstance(config, GpuConfig) else load_config(config, variables)
    apply_log_level(settings)
    return GPUResourceManager(_backend(settings, backend, variables), settings)


_shared: dict[str, GPUResourceManager] = {}
_opening = threading.Lock()


def get_gpu_resource_manager(backend: str | None = None) -> GPUResourceManager:
    """Return the manager that this process shares; after it is closed, a new one.

    Args:
        backend: `cluster` or `this-machine`; None: as configured.

    Raises:
        ConfigInvalid: names path, value and the allowed values.
        ServerNotFound: the backend is the cluster's, and its address is not known.
    """
    with _opening:
        key = backend or ""
        if key not in _shared or _shared[key].closed:
            _shared[key] = open_manager(backend=backend)
        return _shared[key]


def get_async_gpu_resource_manager(backend: str | None = None) -> AsyncGPUResourceManager:
    """Return the shared manager's asynchronous form, for programs with an event loop.

    Raises:
        ConfigInvalid: names path, value and the allowed values.
        ServerNotFound: the backend is the cluster's, and its address is not known.
    """
    return AsyncGPUResourceManager(get_gpu_resource_manager(backend))


def _backend(config: GpuConfig, wanted: str | None, environ: Mapping[str, str]) -> Backend:
    choice = wanted or config.backend
    if choice not in {CLUSTER, THIS_MACHINE, "auto"}:
        raise ConfigInvalid(f"backend: {choice!r}; use one of: auto, {CLUSTER}, {THIS_MACHINE}")
    gpus = gpus_of(config)
    if choice == CLUSTER or (choice == "auto" and _uses_cluster(config, gpus, environ)):
        # httpx is imported on first use: this machine's backend starts faster without it.
        from gpupack.cluster.opening import open_cluster  # noqa: PLC0415

        return open_cluster(config.cluster, environ)
    if config.this_machine.simulated_gpus:
        _warn_of_simulation(config)
    return HostBackend(open_host(config, gpus).ledger, gpus)


def _warn_of_simulation(config: GpuConfig) -> None:
    warn(
        f"the GPUs of this machine are simulated ({config.this_machine.simulated_gpus}): nothing "
        "computes on them",
        SimulatedGpuWarning,
    )


def _uses_cluster(config: GpuConfig, gpus: Gpus, environ: Mapping[str, str]) -> bool:
    if config.cluster.server:
        return True
    try:
        here = bool(gpus.read().devices)
    except InventoryUnavailable:
        here = True
    return not here and (in_pod(environ) or _has_kubeconfig(environ))


def _has_kubeconfig(environ: Mapping[str, str]) -> bool:
    # Imported on first use, as above.
    from gpupack_kubeclient.kubeconfig.files import exist  # noqa: PLC0415

    return exist(environ)
