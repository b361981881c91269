# SPDX-License-Identifier: Apache-2.0
"""The parts that all calls need; `SharedParts`: those for calls that one machine also serves."""

import dataclasses
from typing import Any, Final, Protocol

import msgspec
from litestar import Request
from litestar.datastructures import State
from prometheus_client import CollectorRegistry

from gpupack_apiserver.config import ConfigFile
from gpupack_apiserver.errors import Missing, TokenNeeded
from gpupack_apiserver.events.feed import Feed
from gpupack_apiserver.events.frames import Frames
from gpupack_apiserver.events.limits import StreamLimits
from gpupack_apiserver.history import History
from gpupack_apiserver.node_views import NodeViews
from gpupack_apiserver.placed_process import ALLOCATION, PlacedProcess, placed_process
from gpupack_apiserver.questions import Questions
from gpupack_apiserver.quota_history import QuotaHistory
from gpupack_apiserver.read_model import ReadModel
from gpupack_apiserver.rights import Rights
from gpupack_apiserver.settings import NO_PLACEHOLDER, Placeholder
from gpupack_apiserver.shown_job import ShownJob
from gpupack_httpserver.access import Caller
from gpupack_httpserver.connections import certificate_of
from gpupack_httpserver.user import User
from gpupack_kubeclient.client import Api
from gpupack_placement import Cluster, Gang, Placement, Refusal, plan_gang

TOKEN_HEADER: Final = "Gpupack-Authorization"  # noqa: S105 - the name of a header
"""A header like Authorization, which a proxy such as the API server's removes (ADR 77)."""

MAX_DIRECT_WORKERS: Final = 64
"""Maximum workers placed directly, in some milliseconds among 5,000 nodes; more use a thread."""

Plan = tuple[Placement, ...] | Refusal

Call = Request[Any, Any, State]


class WorkerRef(msgspec.Struct, frozen=True):
    """A worker of an allocation or GPUJob (NAMESPACE/NAME) that a process belongs to."""

    allocation: str
    job: str
    worker: int


class Model(Protocol):
    """A source of nodes."""

    @property
    def cluster(self) -> Cluster:
        """Nodes, with what is held of them."""

    def missing(self) -> str:
        """Return what is missing for an answer; empty: nothing."""

    def require_fresh(self) -> None:
        """Refuse to answer from data that may be old; raises NotReady."""


class SharedParts(Protocol):
    """The parts for a call that needs no cluster."""

    @property
    def model(self) -> Model:
        """The source of nodes."""

    @property
    def nodes(self) -> NodeViews:
        """Views of the nodes."""

    @property
    def history(self) -> History:
        """History of the last hour."""

    @property
    def registry(self) -> CollectorRegistry:
        """Registry of the metrics."""

    async def require_metrics_access(self, call: Call) -> None:
        """Refuse unless the caller may get /metrics; raises Denied, KubeError."""

    async def require_viewer(self, call: Call) -> User:
        """Return a caller that may see all nodes; raises Denied, NotReady, KubeError."""

    async def plan(self, user: User, gang: Gang) -> Plan:
        """Return where a gang would be placed now; raises Denied."""

    async def find_process(self, call: Call, worker: WorkerRef) -> PlacedProcess:
        """Return a process's data; raises Denied, NotReady, KubeError, Missing, SetupInvalid."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of the cluster's server."""

    model: ReadModel
    nodes: NodeViews
    history: History
    quota_history: QuotaHistory
    rights: Rights
    config: ConfigFile
    feed: Feed
    frames: Frames
    streams: StreamLimits
    questions: Questions
    api: Api
    placeholder: Placeholder = NO_PLACEHOLDER
    """Image of pods that only hold GPUs."""
    registry: CollectorRegistry = dataclasses.field(default_factory=CollectorRegistry)
    """Registry of the metrics."""

    async def authenticate(self, call: Call) -> User:
        """Return the caller, once the state is known; raises Denied, NotReady, KubeError."""
        user = await self.rights.authenticate(caller_of(call))
        self.model.require_fresh()
        return user

    async def require_metrics_access(self, call: Call) -> None:
        """Refuse unless the caller may get /metrics; raises Denied, KubeError."""
        await self.rights.require_path(caller_of(call), call.url.path)

    async def require_viewer(self, call: Call) -> User:
        """Return a caller that may see the whole cluster; raises Denied, NotReady, KubeError."""
        user = await self.authenticate(call)
        await self.rights.require_cluster(user)
        return user

    async def find_job(self, call: Call, namespace: str, name: str) -> tuple[User, ShownJob]:
        """Return the caller and the GPUJob; raises Denied, NotReady, KubeError, Missing."""
        user = await self.authenticate(call)
        await self.rights.require_namespace(user, "gpujobs", namespace)
        job = self.model.jobs.by_key.get((namespace, name))
        if job is None:
            raise Missing(f"there is no GPUJob {namespace}/{name}")
        return user, job

    async def plan(self, user: User, gang: Gang) -> Plan:
        """Return where a gang would be placed now; raises Denied after too many questions."""
        cluster, policy = self.model.cluster, self.model.policy()
        if gang.workers <= MAX_DIRECT_WORKERS:
            return plan_gang(cluster, gang, policy)
        return await self.questions.answer_on_cluster(
            user, cluster, lambda copy: plan_gang(copy, gang, policy)
        )

    async def find_process(self, call: Call, worker: WorkerRef) -> PlacedProcess:
        """Return a process's data; raises Denied, NotReady, KubeError, Missing, SetupInvalid."""
        user = await self.authenticate(call)
        namespace, _, name = (worker.allocation or worker.job).partition("/")
        await self.rights.require_namespace(user, "gpujobs", namespace)
        job = self.model.jobs.by_key.get((namespace, name))
        if job is None or (worker.allocation and ALLOCATION not in job.metadata.labels):
            kind = "allocation" if worker.allocation else "GPUJob"
            raise Missing(f"there is no {kind} {namespace}/{name}")
        by_node = bool(worker.allocation)
        return placed_process(job, self.model.cluster, worker=worker.worker, by_node=by_node)


def parts_of(state: State) -> Parts:
    """Return the parts that the application was built with."""
    found: Parts = state["parts"]
    return found


def shared_parts_of(state: State) -> SharedParts:
    """Return the parts of an application that may be one machine's."""
    found: SharedParts = state["parts"]
    return found


def caller_of(call: Call) -> Caller:
    """Return the caller, as far as the call identifies it."""
    return Caller(
        authorization=authorization_of(call),
        address=call.client.host if call.client else "",
        certificate=certificate_of(call.scope),
    )


def authorization_of(call: Call) -> str:
    """Return the caller's token with its scheme from either header; the page's own comes first."""
    return call.headers.get(TOKEN_HEADER, "") or call.headers.get("authorization", "")


def token_of(call: Call) -> str:
    """Return the caller's Authorization header, after authentication.

    Calls that change something or are authorized elsewhere use it. A certificate cannot be passed
    on, and a browser would also send one for other sites' pages.

    Raises:
        TokenNeeded: a certificate identifies the caller, which sent no token.
    """
    if header := authorization_of(call):
        return header
    raise TokenNeeded(
        "a client certificate is enough for calls that only read; this call needs a token"
    )
