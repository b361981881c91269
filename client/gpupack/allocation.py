# SPDX-License-Identifier: Apache-2.0
"""GPUs that are held for this process until it releases them."""

import datetime as dt
import os
import threading
from collections.abc import Callable, Mapping, MutableMapping
from types import TracebackType
from typing import Any, Self

from gpupack.training_config import TrainingGPUConfig
from gpupack.views import WorkerGpus


class Allocation:
    """GPUs that are held: a context manager that releases them at its end.

    Attributes:
        allocation_id: ID with which the allocation is read and released.
        config: the request.
        workers: node and GPUs of each worker.
        environment: variables for a process on the first worker's node: CUDA_VISIBLE_DEVICES by
            UUID, and the variables of gpupack's containers, such as `GPUPACK_DEVICES`.
        simulated: nothing computes on these GPUs.
        expires: when the cluster ends the allocation by itself; None: there is no time limit.
        pass_fds: on this machine: open files for `pass_fds` of subprocess. A child that gets them
            keeps the GPUs where this process ends without releasing them. release() also takes the
            GPUs from the child: wait for the child first.
    """

    def __init__(  # noqa: PLR0913 - one keyword for each attribute
        self,
        *,
        allocation_id: str,
        config: TrainingGPUConfig,
        workers: tuple[WorkerGpus, ...],
        environment: Mapping[str, str],
        give_back: Callable[[], None],
        simulated: bool = False,
        expires: dt.datetime | None = None,
        pass_fds: tuple[int, ...] = (),
    ) -> None:
        self.allocation_id = allocation_id
        self.config = config
        self.workers = workers
        self.environment = dict(environment)
        self.simulated = simulated
        self.expires = expires
        self.pass_fds = pass_fds
        self._give_back = give_back
        self._owner_pid = os.getpid()
        self._held, self._releasing = True, threading.Lock()
        self._applied: list[tuple[MutableMapping[str, str], dict[str, str | None]]] = []

    @property
    def node_name(self) -> str:
        """Node of the first worker."""
        return self.workers[0].node_name

    @property
    def device_uuids(self) -> tuple[str, ...]:
        """UUIDs of the first worker's GPUs."""
        return self.workers[0].device_uuids

    @property
    def held(self) -> bool:
        """Whether this process still holds the GPUs. After a fork only the parent does."""
        return self._held and self._owner_pid == os.getpid()

    def apply(self, environ: MutableMapping[str, str] | None = None) -> None:
        """Set the variables, so that CUDA finds only these GPUs; release() restores the old values.

        The variables affect libraries that have not initialized their GPUs yet, and processes that
        start later.
        """
        environ = os.environ if environ is None else environ
        before = {name: environ.get(name) for name in self.environment}
        environ.update(self.environment)
        self._applied.append((environ, before))

    def release(self) -> None:
        """Release the GPUs; a second call does nothing.

        Raises:
            GpupackError: they may still be held; the call can be repeated.
        """
        if self._owner_pid != os.getpid():
            return
        with self._releasing:
            if not self._held:
                return
            self._give_back()
            self._held = False
        self._restore_variables()

    def as_dict(self) -> dict[str, Any]:
        """Return the allocation in the form of the answer of `POST allocate`."""
        return {
            "success": self.held,
            "allocation_id": self.allocation_id,
            "node_name": self.node_name,
            "gpu_config": {
                **self.config.as_dict(),
                "workers": [
                    {
                        "node_name": each.node_name,
                        "device_ids": list(each.device_ids),
                        "device_uuids": list(each.device_uuids),
                    }
                    for each in self.workers
                ],
                "environment": self.environment,
            },
            "simulated": self.simulated,
            "expires": self.expires.isoformat() if self.expires else None,
        }

    def _restore_variables(self) -> None:
        """Restore variables, except those that the program has changed since."""
        while self._applied:
            environ, before = self._applied.pop()
            for name, value in before.items():
                if environ.get(name) != self.environment[name]:
                    continue
                if value is None:
                    del environ[name]
                else:
                    environ[name] = value

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        what = "simulated " if self.simulated else ""
        gpus = ", ".join(uuid for each in self.workers for uuid in each.device_uuids)
        return f"<Allocation {self.allocation_id}: {what}{gpus} on {self.node_name}>"
