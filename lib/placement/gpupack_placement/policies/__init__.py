# SPDX-License-Identifier: Apache-2.0
"""The table of policies; a new policy needs a file here and a line below."""

from gpupack_placement.errors import UnknownPolicy
from gpupack_placement.policies.best_fit import BestFit
from gpupack_placement.policies.bid_price import BidPrice
from gpupack_placement.policies.dot_product import DotProduct
from gpupack_placement.policies.fgd import Fgd
from gpupack_placement.policies.first_fit import FirstFit
from gpupack_placement.policies.gpu_clustering import GpuClustering
from gpupack_placement.policies.gpu_packing import GpuPacking
from gpupack_placement.policies.pace import Pace
from gpupack_placement.policies.policy import Policy
from gpupack_placement.policies.random import Random
from gpupack_placement.policies.weighted import Weighted, terms
from gpupack_placement.policies.worst_fit import WorstFit

_TABLE: tuple[type[Policy], ...] = (
    BestFit,
    BidPrice,
    DotProduct,
    Fgd,
    FirstFit,
    GpuClustering,
    GpuPacking,
    Pace,
    Random,
    WorstFit,
)

POLICIES: dict[str, Policy] = {policy.name: policy() for policy in _TABLE}
"""Policies by name, not informed. Some keep memos: threads that run in parallel take one policy
each, by `policy_named(…).informed(…)`."""

DEFAULT = "default"
DEFAULT_POLICY = BidPrice.name
"""The policy that `default` names."""


def policy_named(name: str) -> Policy:
    """Return the policy of this name, or a weighted combination such as `0.7*fgd+0.3*best-fit`.

    Raises:
        UnknownPolicy: the message lists the valid names, or says what is wrong in the expression.
    """
    weighted = terms(name) if "+" in name or "*" in name else [(1.0, name)]
    parts = [(weight, _known(part)) for weight, part in weighted]
    return Weighted(parts) if len(parts) > 1 else parts[0][1]


def _known(name: str) -> Policy:
    try:
        return POLICIES[DEFAULT_POLICY if name == DEFAULT else name]
    except KeyError:
        known = ", ".join((*sorted(POLICIES), DEFAULT))
        raise UnknownPolicy(f"there is no policy {name!r}; use one of: {known}") from None
