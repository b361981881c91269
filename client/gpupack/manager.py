# SPDX-License-Identifier: Apache-2.0
"""The manager, with the same calls for every backend."""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import msgspec

from gpupack.allocation import Allocation
from gpupack.backend import Backend, Patience
from gpupack.config import GpuConfig
from gpupack.errors import ConfigInvalid, GpupackError, NotEnoughGpus, NothingHeld
from gpupack.jobs import Jobs
from gpupack.training_config import TrainingGPUConfig
from gpupack.views import ClusterStatus, GPUResourceStatus, Validation
from gpupack_restapi.allocations import Workload


class GPUResourceManager:
    """A manager that reads the state of GPUs, holds them and releases them.

    As a context manager it releases everything at its end. Its calls may come from several threads.

    Args:
        backend: source of the GPUs; the manager closes it.
        config: intervals and limits.
    """

    def __init__(self, backend: Backend, config: GpuConfig) -> None:
        self.backend, self.config = backend, config
        self._allocations: dict[str, Allocation] = {}
        self._waits: dict[threading.Event, int] = {}
        """The stops of calls that wait for GPUs, and the threads of these calls."""
        self._changing = threading.Condition(threading.Lock())
        self.closed = False

    @property
    def initialized(self) -> bool:
        """Whether the backend answers now."""
        try:
            self.backend.status()
        except GpupackError:
            return False
        return True

    @property
    def jobs(self) -> Jobs:
        """GPUJobs of the cluster: its queue, why a job waits; suspend, resume and rerun.

        Raises:
            Unsupported: the manager is of this machine, which has none.
        """
        return self.backend.jobs

    def get_available_gpu_nodes(
        self, gpu_type: str | None = None, min_memory_gb: float = 0.0, *, vendor: str = ""
    ) -> list[GPUResourceStatus]:
        """Return nodes with a free GPU of this model and this memory (GB of 10^9 bytes).

        Args:
            gpu_type: model in the form that users write; None: any.
            min_memory_gb: minimum memory of the GPU.
            vendor: a key of `gpu_resource`; empty: any.

        Raises:
            ConfigInvalid: an argument is wrong.
            GpupackError: the backend does not answer.
        """
        if not isinstance(gpu_type, str | None):
            raise ConfigInvalid(f"gpu_type: {gpu_type!r}; give a model such as V100, or None")
        if not _is_amount(min_memory_gb):
            raise ConfigInvalid(f"min_memory_gb: {min_memory_gb!r}; give a number of GB, 0 or more")
        found = self.backend.nodes(gpu_type=gpu_type or "", min_memory_gb=min_memory_gb)
        resource = self.config.resource_name(vendor) if vendor else ""
        return [
            each
            for each in found
            if each.available_gpus
            and each.ready
            and (not resource or any(gpu.resource == resource for gpu in each.devices))
        ]

    def get_gpu_status(self) -> ClusterStatus:
        """Return what is free and what is allocated, in percent.

        Raises:
            GpupackError: the backend does not answer.
        """
        return self.backend.status()

    def get_gpu_monitoring_data(self) -> dict[str, Any]:
        """Return the data of get_gpu_status in the form of `GET status`.

        Raises:
            GpupackError: the backend does not answer.
        """
        data: dict[str, Any] = msgspec.to_builtins(self.backend.status())
        return data

    def validate_gpu_requirements(self, config: TrainingGPUConfig) -> Validation:
        """Tell whether the request can be satisfied; the result is true where it can.

        Raises:
            GpupackError: a field is wrong, or the backend does not answer.
        """
        _check(config)
        return self.backend.validate(config)

    def allocate_gpu_resources(
        self,
        config: TrainingGPUConfig,
        *,
        timeout_seconds: float | None = None,
        hold_seconds: int | None = None,
    ) -> Allocation:
        """Hold GPUs.

        Args:
            config: the request.
            timeout_seconds: maximum wait; None: as configured; 0: no wait.
            hold_seconds: when the cluster ends the allocation by itself; None: as configured. On
                this machine GPUs are held until they are released or the process ends.

        Raises:
            NotEnoughGpus: they were not free in time, or never can be.
            GpupackError: a field is wrong, or the backend does not answer.
        """
        return self.allocate(config, self.patience(timeout_seconds, hold_seconds))

    def allocate(self, config: TrainingGPUConfig, patience: Patience) -> Allocation:
        """Hold GPUs as allocate_gpu_resources does; the caller can end the wait."""
        _check(config)
        with self._wait(patience):
            try:
                allocation = self.backend.allocate(config, patience)
            except NotEnoughGpus as error:
                if self.closed:
                    raise _closed_during_call() from error
                raise
            with self._changing:
                held = self._allocations.items()
                self._allocations = {name: each for name, each in held if each.held}
                if not self.closed:
                    self._allocations[allocation.allocation_id] = allocation
                    return allocation
            allocation.release()
            raise _closed_during_call()

    @contextmanager
    def _wait(self, patience: Patience) -> Iterator[None]:
        """Let close() end the wait."""
        with self._changing:
            if self.closed:
                raise GpupackError("this manager is closed; open another one")
            self._waits[patience.stop] = threading.get_ident()
        try:
            yield
        finally:
            with self._changing:
                del self._waits[patience.stop]
                self._changing.notify_all()

    def patience(self, timeout_seconds: float | None, hold_seconds: int | None) -> Patience:
        """Return a Patience with configured values in place of None.

        Raises:
            ConfigInvalid: timeout_seconds is not a number of at least 0; NaN would never end.
        """
        if timeout_seconds is not None and not _is_amount(timeout_seconds):
            raise ConfigInvalid(
                f"timeout_seconds: {timeout_seconds!r}; give a number of seconds, 0 or more"
            )
        return Patience(
            self.config.allocation_timeout_seconds if timeout_seconds is None else timeout_seconds,
            self.config.cluster.hold_seconds if hold_seconds is None else hold_seconds,
        )

    def run_on(
        self,
        allocation: Allocation | str,
        command: Sequence[str],
        *,
        image: str,
        environment: Mapping[str, str] | None = None,
        non_root: bool = False,
    ) -> None:
        """Run a program on the GPUs of an allocation of the cluster.

        It replaces the program that holds them; the GPUs stay the same, and it ends with the
        allocation.

        Args:
            allocation: the allocation, or its ID.
            command: the program with its arguments; it runs in each worker.
            image: container image of the program.
            environment: further variables.
            non_root: declare that the image's user is not root, as namespaces at level `restricted`
                require.

        Raises:
            NothingHeld: this manager has no such allocation.
            ConfigInvalid: it is not an allocation, or the command is not a list of words.
            Unsupported: the GPUs are of this machine.
            GpupackError: a field is wrong, or the cluster refuses it.
        """
        held = self._find(allocation)
        if isinstance(command, str | bytes) or not command:
            raise ConfigInvalid(
                f"command: {command!r}; give a list of words, such as ['torchrun', 'train.py']"
            )
        workload = Workload(image, list(command), dict(environment or {}), non_root)
        self.backend.run(held.allocation_id, workload)

    def cleanup_gpu_resources(self, allocation: Allocation | str | None = None) -> None:
        """Release GPUs.

        Args:
            allocation: the allocation, or its ID; None: all that this manager holds.

        Raises:
            NothingHeld: this manager has no such allocation.
            GpupackError: it may still be held.
        """
        failed: GpupackError | None = None
        with self._changing:
            everything = list(self._allocations.values())
        for each in everything if allocation is None else [self._find(allocation)]:
            try:
                each.release()
            except GpupackError as error:
                failed = failed or error
                continue
            with self._changing:
                self._allocations.pop(each.allocation_id, None)
        if failed is not None:
            raise failed

    def watch(self) -> Iterator[ClusterStatus]:
        """Yield the status now, and again whenever it has changed by the configured threshold.

        Raises:
            GpupackError: the backend does not answer.
        """
        last = self.backend.status()
        yield last
        while True:
            time.sleep(self.config.monitor_update_interval)
            status = self.backend.status()
            if has_changed(last, status, self.config.resource_change_threshold):
                last = status
                yield status

    def close(self) -> None:
        """Release everything, and close all connections. Calls that wait for GPUs end.

        Raises:
            GpupackError: GPUs may still be held.
        """
        with self._changing:
            self.closed = True
            for stop in self._waits:
                stop.set()
            # A waiting call needs the backend to release what it has requested. That of this
            # thread, if a signal handler closes the manager, does not continue before the return.
            self._changing.wait_for(lambda: set(self._waits.values()) <= {threading.get_ident()})
        try:
            self.cleanup_gpu_resources()
        finally:
            self.backend.close()

    def _find(self, allocation: Allocation | str) -> Allocation:
        if not isinstance(allocation, Allocation | str):
            raise ConfigInvalid(
                f"allocation: {allocation!r}; give an allocation of this manager, or its ID"
            )
        name = allocation if isinstance(allocation, str) else allocation.allocation_id
        with self._changing:
            if name not in self._allocations:
                raise NothingHeld(f"{name}: this manager holds no such allocation")
            return self._allocations[name]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _check(config: TrainingGPUConfig) -> None:
    if not isinstance(config, TrainingGPUConfig):
        raise ConfigInvalid(
            f"config: {config!r}; give a TrainingGPUConfig, such as TrainingGPUConfig(gpu_count=2)"
        )
    config.check()


def _is_amount(value: object) -> bool:
    """Return whether this is a number of at least 0; NaN is not."""
    return isinstance(value, int | float) and value >= 0


def _closed_during_call() -> GpupackError:
    return GpupackError("the manager was closed during the call; open another one")


def has_changed(before: ClusterStatus, now: ClusterStatus, threshold: float) -> bool:
    """Return whether the allocated part of all GPUs, or of their memory, changed by the threshold.

    A changed number of GPUs or nodes always counts. `threshold` 0: any change counts.
    """
    if (before.total_nodes, before.total_gpus) != (now.total_nodes, now.total_gpus):
        return True
    pairs = (
        (before.utilization.gpu_utilization, now.utilization.gpu_utilization),
        (before.utilization.gpu_memory_usage, now.utilization.gpu_memory_usage),
    )
    change = max(abs(now - then) for then, now in pairs) / 100
    return change > 0 and change >= threshold
