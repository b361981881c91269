# SPDX-License-Identifier: Apache-2.0
"""Whether the kube-scheduler beside us is the leader.

Leader election is kube-scheduler's own; its Lease is only watched. A Lease whose renewals we no
longer see counts as lost when it would be for its holder: a partitioned extender must not answer
beside its successor.
"""

import logging
import math
from collections.abc import Callable

from gpupack_kube import objects

log = logging.getLogger(__name__)


class Leadership:
    """A reflector's store for one Lease; `gained` is called whenever leading begins."""

    def __init__(
        self,
        *,
        pod_name: str,
        clock: Callable[[], float],
        gained: Callable[[], None] = lambda: None,
    ) -> None:
        self._prefix = f"{pod_name}_"
        self._clock = clock
        self._gained = gained
        self._since = math.inf
        self._until = -math.inf

    @property
    def held(self) -> bool:
        """Whether we lead now."""
        return self._clock() < self._until

    @property
    def held_seconds(self) -> float:
        """For how long we have led."""
        return self._clock() - self._since if self.held else 0.0

    def upsert(self, lease: objects.Lease) -> None:
        """The Lease was taken or renewed."""
        if not lease.spec.holder_identity.startswith(self._prefix):
            self._lose()
            return
        now = self._clock()
        if not self.held:
            log.info("leading as %s", lease.spec.holder_identity)
            self._since = now
            self._gained()
        self._until = now + lease.spec.lease_duration_seconds

    def remove(self, _: objects.Lease) -> None:
        """The Lease is gone."""
        self._lose()

    def replace(self, leases: list[objects.Lease]) -> None:
        """This is the Lease, if there is one."""
        if not leases:
            self._lose()
        for lease in leases:
            self.upsert(lease)

    def _lose(self) -> None:
        if self.held:
            log.info("not leading any more")
        self._since, self._until = math.inf, -math.inf
