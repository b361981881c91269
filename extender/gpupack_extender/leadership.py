# SPDX-License-Identifier: Apache-2.0
"""Leadership of the kube-scheduler in the same pod.

Leader election is kube-scheduler's own; its Lease is only watched. A Lease whose renewals the watch
no longer shows counts as lost when its holder would lose it: a partitioned extender must not answer
at the same time as its successor.
"""

import logging
import math
from collections.abc import Callable

from gpupack_kubeclient import objects

log = logging.getLogger(__name__)


class Leadership:
    """Reflector's store for one Lease; `gained` is called whenever leading begins."""

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
        self._until = -math.inf

    @property
    def held(self) -> bool:
        """Whether this process leads now."""
        return self._clock() < self._until

    def upsert(self, lease: objects.Lease) -> None:
        """Record that the Lease was taken or renewed."""
        if not lease.spec.holder_identity.startswith(self._prefix):
            self._lose()
            return
        if not self.held:
            log.info("leading as %s", lease.spec.holder_identity)
            self._gained()
        self._until = self._clock() + lease.spec.lease_duration_seconds

    def remove(self, _: objects.Lease) -> None:
        """Record that the Lease was deleted."""
        self._lose()

    def replace(self, leases: list[objects.Lease]) -> None:
        """Record the Lease of a list, or that there is none."""
        if not leases:
            self._lose()
        for lease in leases:
            self.upsert(lease)

    def _lose(self) -> None:
        if self.held:
            log.info("not leading any more")
        self._until = -math.inf
