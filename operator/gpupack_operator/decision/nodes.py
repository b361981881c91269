# SPDX-License-Identifier: Apache-2.0
"""Types for requests for nodes: settings, observations, answers and writes."""

import dataclasses
from collections.abc import Mapping
from typing import Literal


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Provisioning:
    """Settings for requests for nodes.

    Attributes:
        class_name: class of each ProvisioningRequest.
        parameters: parameters of that class.
        after_seconds: how long a job lacks only free GPUs before nodes are requested.
        min_wait_seconds: no nodes are requested if the estimated start is within this time.
        decision_seconds: from the request until the autoscaler must have answered.
        place_seconds: from provisioning until the job must have its places.
        retry_after_seconds: from the deletion of a request until the next one of the same job.
        backoff_seconds: from a request that brought nothing until the next, doubled each time.
        max_backoff_seconds: the longest such time.
        max_failures: after this number of consecutive failures no nodes are requested for the
            unchanged job.
    """

    class_name: str
    parameters: Mapping[str, str] = dataclasses.field(default_factory=dict)
    after_seconds: float = 60
    min_wait_seconds: float = 300
    decision_seconds: float = 900
    place_seconds: float = 600
    retry_after_seconds: float = 60
    backoff_seconds: float = 60
    max_backoff_seconds: float = 1800
    max_failures: int = 3

    def backoff_after(self, failures: int) -> float:
        """Return the seconds from the last of these consecutive failures until the next request."""
        return min(self.backoff_seconds * 2.0 ** min(failures - 1, 16), self.max_backoff_seconds)


@dataclasses.dataclass(frozen=True, slots=True)
class ObservedRequest:
    """State of the ProvisioningRequest that was made according to the status.

    Attributes:
        state: Open: no answer yet. Gone: it was deleted.
        message: the autoscaler's message.
    """

    state: Literal["Open", "Provisioned", "Failed", "Gone"]
    message: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class ReserveNodesRequest:
    """Check whether the limits of namespace and cluster allow one more request.

    Attributes:
        gpus: the GPUs of all workers.
        position: the position in the queue by its last answer; 0: it is not known.
        quota_gpus: the GPUs that the quota leaves to the namespace; None: no limit.
        is_fresh: whether the queue said in this pass that the job lacks free GPUs.
    """

    gpus: int
    position: int
    quota_gpus: float | None = None
    is_fresh: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class CreateNodesRequest:
    """Creation of the PodTemplate and the ProvisioningRequest."""

    number: int


@dataclasses.dataclass(frozen=True, slots=True)
class DeleteNodesRequest:
    """Deletion of the PodTemplate and the ProvisioningRequest."""

    number: int


@dataclasses.dataclass(frozen=True, slots=True)
class NodesRequestAllowed:
    """Answer that one more request may be made."""

    is_fresh: bool


@dataclasses.dataclass(frozen=True, slots=True)
class NodesRequestDeferred:
    """Answer that no further request may be made now.

    Attributes:
        message: the limit that applies; empty: another job requests first.
        retry_seconds: when that may have changed.
    """

    message: str
    retry_seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class NodesRequestCreated:
    """Answer that the objects exist."""


@dataclasses.dataclass(frozen=True, slots=True)
class NodesRequestRefused:
    """Answer that the objects could not be created."""

    message: str


@dataclasses.dataclass(frozen=True, slots=True)
class NodesRequestDeleted:
    """Answer that the objects are deleted."""


NodesAnswer = (
    NodesRequestAllowed
    | NodesRequestDeferred
    | NodesRequestCreated
    | NodesRequestRefused
    | NodesRequestDeleted
)
NodesAction = ReserveNodesRequest | CreateNodesRequest | DeleteNodesRequest
