# SPDX-License-Identifier: Apache-2.0
"""The operations of a program on the GPUJobs of a cluster, in addition to allocations."""

import datetime as dt
from collections.abc import Iterable
from math import inf
from typing import Final, Protocol

from gpupack.views import Explanation, QueueRow, WrittenJob

_LAST: Final = dt.datetime.max.replace(tzinfo=dt.UTC)


class Jobs(Protocol):
    """GPUJobs of a cluster. Calls may be made from several threads.

    `namespace` is by default GPUPACK_NAMESPACE, the kubeconfig's or the pod's. Every call raises
    ConfigInvalid where none of these names one, CallRefused where the server refuses, and
    ServerUnreachable where it does not answer.
    """

    def queue(self, *, namespace: str = "", all_namespaces: bool = False) -> list[QueueRow]:
        """List GPUJobs and standalone pods that wait, in the order in which they are admitted."""

    def explain(self, name: str, *, namespace: str = "") -> Explanation:
        """Return why a GPUJob waits, or how it ended; `pod/NAME` is a standalone pod."""

    def suspend(self, name: str, *, namespace: str = "") -> WrittenJob:
        """Stop a GPUJob and release its GPUs, until it is resumed."""

    def resume(self, name: str, *, namespace: str = "") -> WrittenJob:
        """Let a suspended GPUJob wait for GPUs again."""

    def rerun(self, name: str, *, namespace: str = "", new_name: str = "") -> WrittenJob:
        """Create a GPUJob of the same spec as one that has ended, which does not change.

        Args:
            name: name of the job that has ended.
            namespace: namespace of both.
            new_name: name of the new job; empty: NAME-rerun-X with a random X, so that a lost
                answer creates no second job.
        """


def sort_queue(rows: Iterable[QueueRow]) -> list[QueueRow]:
    """Sort by position; those without one last, the highest priority first, then the oldest."""
    return sorted(
        rows,
        key=lambda row: (
            inf if row.position is None else row.position,
            -row.priority,
            row.created or _LAST,
            row.namespace,
            row.name,
        ),
    )
