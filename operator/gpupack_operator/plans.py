# SPDX-License-Identifier: Apache-2.0
"""Client of the plan API.

After any error the connection is closed. Nothing is retried here; the job waits and says why.

One plan is made at a time, and no call waits here for its turn: a call may take ten seconds when
the extender hangs, and each waiting call would occupy a worker that running jobs need.
"""

import time
from collections.abc import Callable

import aiohttp
import msgspec

from gpupack_crds import names
from gpupack_crds.plan import PlanRefusal, PlanRequest, PlanResponse, Problem
from gpupack_operator.errors import PlanBusy, PlanInvalid, PlanUnanswered
from gpupack_operator.extender_client import ExtenderClient
from gpupack_operator.settings import PlanSettings

CALL_SECONDS = 10.0
PAUSE_SECONDS = 2.0
"""How long the next calls get the same error as one without an answer, without being made."""
OK, BAD_REQUEST, CONFLICT, DENIED = 200, 400, 409, {401, 403}
REQUEST_INVALID = "RequestInvalid"
"""The plan API's reason for a spec or template that cannot be read. A call that it cannot decode is
not the job's fault: the two sides have different versions during a rollout.
"""


class PlanClient:
    """Client that requests placements.

    Args:
        settings: the address and the token.
        on_free: is called when the next plan can be requested.
        clock: seconds.
    """

    def __init__(
        self,
        settings: PlanSettings,
        *,
        on_free: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = ExtenderClient(settings, seconds=CALL_SECONDS)
        self._on_free = on_free
        self._clock = clock
        self._busy = False
        self._trouble: PlanUnanswered | None = None
        self._paused_until = 0.0

    async def request_plan(self, request: PlanRequest) -> PlanResponse | PlanRefusal:
        """Request places for all workers of an attempt.

        Raises:
            PlanBusy: another call is under way.
            PlanUnanswered: there is neither a plan nor a refusal.
            PlanInvalid: the spec or the template cannot be read.
        """
        if self._busy:
            raise PlanBusy("another job is being planned")
        if self._trouble and self._clock() < self._paused_until:
            raise PlanUnanswered(str(self._trouble), denied=self._trouble.denied)
        self._busy = True
        try:
            return await self._post(request)
        except PlanUnanswered as error:
            self._trouble, self._paused_until = error, self._clock() + PAUSE_SECONDS
            await self.aclose()
            raise
        finally:
            self._busy = False
            self._on_free()

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def _post(self, request: PlanRequest) -> PlanResponse | PlanRefusal:
        route = names.PLAN_ROUTE.format(namespace=request.namespace)
        try:
            answer = await self._client.call("POST", route, body=msgspec.json.encode(request))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise PlanUnanswered(
                f"the scheduler does not answer: {_describe_error(error)}"
            ) from error
        return _answer(*answer)


def _answer(status: int, body: bytes) -> PlanResponse | PlanRefusal:
    try:
        if status == OK:
            return msgspec.json.decode(body, type=PlanResponse)
        if status == CONFLICT:
            return msgspec.json.decode(body, type=PlanRefusal)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise PlanUnanswered(f"the scheduler's answer cannot be read: {error}") from error
    problem = _problem(body)
    if status == BAD_REQUEST and problem.reason == REQUEST_INVALID:
        raise PlanInvalid(problem.message)
    said = f"the scheduler gives no answer: {problem.message} ({problem.reason}, status {status})"
    raise PlanUnanswered(said, denied=status in DENIED)


def _problem(body: bytes) -> Problem:
    try:
        return msgspec.json.decode(body, type=Problem)
    except (msgspec.MsgspecError, RecursionError):
        return Problem(reason="unknown format", message=body[:200].decode(errors="replace"))


def _describe_error(error: Exception) -> str:
    """Return the cause without addresses and ports, which differ from call to call."""
    return type(error).__name__
