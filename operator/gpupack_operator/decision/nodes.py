# SPDX-License-Identifier: Apache-2.0
"""The vocabulary of asking for nodes: settings, what was seen, questions, answers and writes."""

import dataclasses
from collections.abc import Mapping
from typing import Literal


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Provisioning:
    """How nodes are asked for.

    Attributes:
        class_name: of each ProvisioningRequest.
        parameters: for that class.
        after_seconds: for so long a job lacks nothing but room before nodes are asked for.
        soon_seconds: a job that is foreseen to start within so long is not asked for.
        answer_seconds: from asking until the autoscaler must have said yes or no.
        place_seconds: from its yes until the job must have its places.
        again_seconds: from giving a request back until the next one of the same job.
        backoff_seconds: from a request that brought nothing until the next, doubled each time.
        most_backoff_seconds: the longest such time.
        most_failures: so many in a row, and the job is not asked for any more as it is.
    """

    class_name: str
    parameters: Mapping[str, str] = dataclasses.field(default_factory=dict)
    after_seconds: float = 60
    soon_seconds: float = 300
    answer_seconds: float = 900
    place_seconds: float = 600
    again_seconds: float = 60
    backoff_seconds: float = 60
    most_backoff_seconds: float = 1800
    most_failures: int = 3

    def backoff_after(self, failures: int) -> float:
        """Seconds from the last of so many failures in a row until the next request."""
        return min(self.backoff_seconds * 2.0 ** min(failures - 1, 16), self.most_backoff_seconds)


@dataclasses.dataclass(frozen=True, slots=True)
class SeenRequest:
    """What became of the ProvisioningRequest that the status says was made.

    Attributes:
        state: Open: no answer yet. Gone: somebody deleted it.
        message: the autoscaler's words.
    """

    state: Literal["Open", "Provisioned", "Failed", "Gone"]
    message: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class ReserveNodes:
    """May one more request be made, by the bounds of namespace and cluster?

    Attributes:
        gpus: of all workers.
        position: in the queue by its last word; 0: it is not known.
        quota_gpus: what the quota leaves to the namespace; None: without bound.
        is_fresh: that the job lacks room was said in this very pass.
    """

    gpus: int
    position: int
    quota_gpus: float | None = None
    is_fresh: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class AskNodes:
    """Create PodTemplate and ProvisioningRequest."""

    number: int


@dataclasses.dataclass(frozen=True, slots=True)
class ReturnNodes:
    """Delete both."""

    number: int


@dataclasses.dataclass(frozen=True, slots=True)
class MayAskNodes:
    """One more request may be made."""

    is_fresh: bool


@dataclasses.dataclass(frozen=True, slots=True)
class MayNotAskNodes:
    """No more may be made now.

    Attributes:
        message: whose bound it is; empty: another job asks first.
        retry_seconds: when that may have changed.
    """

    message: str
    retry_seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class NodesAsked:
    """The objects are there."""


@dataclasses.dataclass(frozen=True, slots=True)
class NodesNotAsked:
    """They could not be created."""

    message: str


@dataclasses.dataclass(frozen=True, slots=True)
class NodesReturned:
    """The objects are gone."""


NodesAnswer = MayAskNodes | MayNotAskNodes | NodesAsked | NodesNotAsked | NodesReturned
NodesAction = ReserveNodes | AskNodes | ReturnNodes
