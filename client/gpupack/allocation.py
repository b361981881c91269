# SPDX-License-Identifier: Apache-2.0
"""GPUs that are held for this process, until it gives them back."""

import datetime as dt
import os
import threading
from collections.abc import Callable, Mapping, MutableMapping
from types import TracebackType
from typing import Any, Self

from gpupack.training_config import TrainingGPUConfig
from gpupack.views import WorkerGpus


class Allocation:
    """GPUs that are held: a context manager that gives them back at its end.

    Attributes:
        allocation_id: by which it can be looked at and released.
        config: what was asked for.
        workers: node and GPUs of each worker.
        environment: for a process on the node of the first worker: CUDA_VISIBLE_DEVICES by UUID
            and what a container of gpupack's finds, `GPUPACK_DEVICES` and its like.
        simulated: nothing computes on these GPUs.
        expires: when the cluster ends it by itself; None: not by a clock.
        pass_fds: of this machine: a child that is given these open files (`pass_fds` of
            subprocess) goes on holding the GPUs where this process ends without releasing them.
            release() takes them from the child, too: wait for it before.
    """

    def __init__(  # noqa: PLR0913 - what there is to say of it, each by its name
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
        self._of_process = os.getpid()
        self._held, self._releasing = True, threading.Lock()
        self._applied: list[tuple[MutableMapping[str, str], dict[str, str | None]]] = []

    @property
    def node_name(self) -> str:
        """Of the first worker."""
        return self.workers[0].node_name

    @property
    def device_uuids(self) -> tuple[str, ...]:
        """Of the first worker."""
        return self.workers[0].device_uuids

    @property
    def held(self) -> bool:
        """Whether this process has not given it back. After a fork it is the parent's alone."""
        return self._held and self._of_process == os.getpid()

    def apply(self, environ: MutableMapping[str, str] | None = None) -> None:
        """Set these variables, so that CUDA finds these GPUs alone; release() takes them back.

        It counts for libraries that have not looked for GPUs yet, and for processes started later.
        """
        environ = os.environ if environ is None else environ
        before = {name: environ.get(name) for name in self.environment}
        environ.update(self.environment)
        self._applied.append((environ, before))

    def release(self) -> None:
        """Give the GPUs back; a second time it does nothing.

        Raises:
            GpupackError: they may be held still; it can be tried again.
        """
        if self._of_process != os.getpid():
            return
        with self._releasing:
            if not self._held:
                return
            self._give_back()
            self._held = False
        self._take_variables_back()

    def as_dict(self) -> dict[str, Any]:
        """The shape that `POST allocate` answers."""
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

    def _take_variables_back(self) -> None:
        """But not those that somebody has set anew."""
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
