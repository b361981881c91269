# SPDX-License-Identifier: Apache-2.0
"""The table of policies: a new one is a file here and a line below."""

from gpupack_core.errors import UnknownPolicy
from gpupack_core.policies.best_fit import BestFit
from gpupack_core.policies.first_fit import FirstFit
from gpupack_core.policies.policy import Policy
from gpupack_core.policies.worst_fit import WorstFit

_ALL: tuple[Policy, ...] = (FirstFit(), BestFit(), WorstFit())

POLICIES: dict[str, Policy] = {policy.name: policy for policy in _ALL}


DEFAULT_POLICY = BestFit.name
"""What `default` stands for."""


def policy_named(name: str) -> Policy:
    """The policy, or an error that lists those that exist."""
    try:
        return POLICIES[DEFAULT_POLICY if name == "default" else name]
    except KeyError:
        known = ", ".join(sorted(POLICIES))
        raise UnknownPolicy(f"there is no policy {name!r}; use one of: {known}") from None
