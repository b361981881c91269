# SPDX-License-Identifier: Apache-2.0
"""The policy of a run, and what it learns on the way."""

from gpupack_core import Policy
from gpupack_simulator.job import Job


class Learning:
    """Mutable; belongs to one engine."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def arrived(self, job: Job) -> None:
        """Learn from it, and now and then inform the policy."""

    def departed(self, job: Job) -> None:
        """It will not come back."""
