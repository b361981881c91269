# SPDX-License-Identifier: Apache-2.0
"""Verbs that kube-scheduler calls, over HTTP on loopback.

If a call cannot be decided, the answer's Error says so, and kube-scheduler retries; only a
malformed call gets a status other than 200.
"""

import dataclasses

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gpupack_extender import endpoints
from gpupack_extender.binding import Binder
from gpupack_extender.call_body import SCANNED_BYTES, CallBody
from gpupack_extender.errors import GangIncomplete
from gpupack_extender.filtering import Filter, nowhere
from gpupack_extender.metrics import Metrics
from gpupack_extender.ranking import Prioritize
from gpupack_extender.readiness import Readiness
from gpupack_extender.wire import BindingArgs, BindingResult, ExtenderArgs, FilterResult
from gpupack_kubeclient.errors import KubeError
from gpupack_scheduler.errors import BindRefused, NotReady
from gpupack_scheduler.requests import pod_request
from gpupack_scheduler.requests.pod_request import PodRequest

PREFIX = "/scheduler"
LIMIT_BYTES = 16 << 20
"""Twenty thousand of the longest node names and the largest pod that etcd accepts, of characters
that Go's JSON writes in six bytes each. Such a pod is not decoded; its owner gets the reason.
"""

BIND_BYTES = 1 << 20
"""More than any names and a UID."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Verbs:
    """Endpoints for filter, prioritize and bind."""

    filter_pod: Filter
    prioritize_pod: Prioritize
    binder: Binder
    readiness: Readiness
    metrics: Metrics

    def app(self) -> Starlette:
        """Return the routes."""
        verbs = {"filter": self.filter, "prioritize": self.prioritize, "bind": self.bind}
        return endpoints.application(
            [
                Route(f"{PREFIX}/{name}", endpoints.guarded(endpoint), methods=["POST"])
                for name, endpoint in verbs.items()
            ]
        )

    async def filter(self, request: Request) -> Response:
        """Answer with the nodes that the pod may use."""
        body = await endpoints.read_body(request, LIMIT_BYTES)
        result = _too_large(body)
        if result is None:
            call = await endpoints.decoded(body, ExtenderArgs)
            with self.metrics.timed("filter"):
                result = self._filter(call)
        self.metrics.count("filter", _outcome(result))
        return endpoints.answer(result)

    async def prioritize(self, request: Request) -> Response:
        """Answer with a score for each node that passed."""
        call = await endpoints.read(request, ExtenderArgs, limit_bytes=LIMIT_BYTES)
        with self.metrics.timed("prioritize"):
            result = self.prioritize_pod(self._ask(call), call.node_names)
        self.metrics.count("prioritize", "ranked")
        return endpoints.answer(result)

    async def bind(self, request: Request) -> Response:
        """Write the pod's node and devices."""
        call = await endpoints.read(request, BindingArgs, limit_bytes=BIND_BYTES)
        with self.metrics.timed("bind"):
            result, outcome = await endpoints.unless_gone(request, self._bind(call))
        self.metrics.count("bind", outcome)
        return endpoints.answer(result)

    def _filter(self, call: ExtenderArgs) -> FilterResult:
        try:
            self.readiness.require_to_answer()
            return self.filter_pod(self._ask(call), call.node_names)
        except NotReady as error:
            return FilterResult(error=str(error))

    def _ask(self, call: ExtenderArgs) -> PodRequest:
        decisions = self.filter_pod.decisions
        return pod_request.of_call(
            call.pod, decisions.observed_resources, max_priority=decisions.max_priority
        )

    async def _bind(self, call: BindingArgs) -> tuple[BindingResult, str]:
        try:
            self.readiness.require_to_answer()
            await self.binder.bind(call)
        except GangIncomplete as error:
            return BindingResult(error=str(error)), "incomplete"
        except (NotReady, BindRefused) as error:
            return BindingResult(error=str(error)), "refused"
        except KubeError as error:
            return BindingResult(error=str(error)), "unknown"
        return BindingResult(), "bound"


def _too_large(body: CallBody) -> FilterResult | None:
    """Return that an oversized pod fits nowhere; None: the pod is not too large.

    The size is rounded: the text is written into the pod, whose next call must have the same text.
    """
    nodes = body.node_names() if body.size > SCANNED_BYTES else None
    if nodes is None:
        return None
    return nowhere(
        nodes,
        f"the pod has {body.size / 1e6:.1f} MB as kube-scheduler sends it, which writes <, > and & "
        f"in six bytes each; at most {SCANNED_BYTES / 1e6:.1f} MB are read: make its args, env or "
        "annotations smaller",
    )


def _outcome(result: FilterResult) -> str:
    if result.error:
        return "error"
    return "placed" if result.node_names else "refused"
