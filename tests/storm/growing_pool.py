# SPDX-License-Identifier: Apache-2.0
"""Simulated nodes that come and go in a storm, by a stand-in for an autoscaler."""

import contextlib
import pathlib
from collections.abc import Iterator, Sequence
from typing import Final

from autoscaler import answering, grown, identity, kind_installed, requests_of, wait_shrunk
from background import running
from harness import Kube, StillWaiting, wait_for
from parts import OPERATOR, environment
from pod_rules import Gpu
from simulated_gpus import A100

ANSWER_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 2.0
GROWN: Final = "GPU-grown-"
"""How UUIDs begin on nodes that the stand-in makes."""
SETTINGS: Final = {
    "GPUPACK_PROVISIONING_AFTER_SECONDS": "2",
    "GPUPACK_PROVISIONING_MIN_ESTIMATED_WAIT_SECONDS": "5",
}
"""Settings of the operator: jobs that do not fit request nodes soon."""


class WithGrown(dict[str, Gpu]):
    """An inventory, with GPUs of nodes that come later: their UUIDs say what they are."""

    def __init__(self, gpus: dict[str, Gpu], key: str) -> None:
        super().__init__(gpus)
        self._grown = Gpu(key, A100.memory_mib)

    def get(self, uuid: str, default: Gpu | None = None) -> Gpu | None:  # type: ignore[override]
        """One by its UUID."""
        found = super().get(uuid, default)
        return self._grown if found is None and uuid.startswith(GROWN) else found


class Pool:
    """The nodes that came."""

    def __init__(self, system: Kube) -> None:
        self._system = system
        self.came: set[str] = set()
        """Names of all."""

    def look(self) -> None:
        """Record the current nodes."""
        self.came.update(grown(self._system))

    def wait_given_back(self, tenants: Sequence[Kube]) -> None:
        """No request is left, and no node that came by one."""
        left: list[str] = []

        def none_left() -> bool:
            left[:] = [name for kube in tenants for name in requests_of(kube)]
            return not left

        try:
            wait_for(none_left, seconds=60, what="no request for nodes")
        except StillWaiting as error:
            error.add_note(f"left: {left}")
            raise
        wait_shrunk(self._system)


@contextlib.contextmanager
def growing_pool(system: Kube, folder: pathlib.Path) -> Iterator[Pool]:
    """Have the operator request nodes soon, and a stand-in create them."""
    pool = Pool(system)
    with (
        kind_installed(system),
        environment(system, OPERATOR, "operator", SETTINGS),
        identity(system, folder) as kubeconfig,
        answering(kubeconfig, after_seconds=ANSWER_SECONDS),
        running(pool.look, lambda: LOOK_SECONDS),
    ):
        yield pool
