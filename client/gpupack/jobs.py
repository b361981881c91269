# SPDX-License-Identifier: Apache-2.0
"""What a program does with the GPUJobs of a cluster, beyond allocations."""

from typing import Protocol

from gpupack.job_views import Explanation, QueueRow, WrittenJob


class Jobs(Protocol):
    """GPUJobs of a cluster. Calls may be made from several threads.

    `namespace` is by default GPUPACK_NAMESPACE, the kubeconfig's or the pod's. Every call raises
    ConfigInvalid where none of these names one, CallRefused where the server refuses, and
    ServerUnreachable where it does not answer.
    """

    def queue(self, *, namespace: str = "", all_namespaces: bool = False) -> list[QueueRow]:
        """List GPUJobs and standalone pods that wait, in the order in which they are admitted."""

    def explain(self, name: str, *, namespace: str = "") -> Explanation:
        """Say why a GPUJob waits, or what became of it; `pod/NAME` is a standalone pod."""

    def suspend(self, name: str, *, namespace: str = "") -> WrittenJob:
        """Stop a GPUJob and give its GPUs back, until it is resumed."""

    def resume(self, name: str, *, namespace: str = "") -> WrittenJob:
        """Let a GPUJob that is suspended wait for GPUs again."""

    def rerun(self, name: str, *, namespace: str = "", new_name: str = "") -> WrittenJob:
        """Make a new GPUJob of the same spec as one that has ended, which stays as it is.

        Args:
            name: of the job that has ended.
            namespace: of both.
            new_name: of the new job; empty: NAME-rerun-X, of which X is chosen at random, so that
                a lost answer makes no second job.
        """
