# SPDX-License-Identifier: Apache-2.0
"""kopf's part: events of GPUJobs.

Only low-level events are used: they need no finalizer and no annotation. So kopf never writes to an
object and reads none of its own data there (`kopf_storage`), and a GPUJob can be deleted while the
operator is down. kopf's own indices are not used: no handler runs before they are filled, and each
indexed object wakes all handlers that wait for that, which takes minutes with some thousand
GPUJobs.
"""

from collections.abc import Mapping
from typing import Any, Final

import kopf
import msgspec

from gpupack_crds import names
from gpupack_operator import kopf_session
from gpupack_operator.cache import ReadableGpuJob
from gpupack_operator.kopf_session import GpuJobStream
from gpupack_operator.kopf_storage import NO_FINALIZER, NoLastState, NoProgress
from gpupack_operator.watches import GpuJobs

GPUJOBS = (names.GROUP, names.VERSION, "gpujobs")

LOGIN_BACKOFF_SECONDS: Final = 5.0
"""Delay until kopf signs in again after a failure, as when a file is being replaced."""


def registry(
    gpujobs: GpuJobs, stream: GpuJobStream, environ: Mapping[str, str]
) -> kopf.OperatorRegistry:
    """Return the handlers for kopf; they update `gpujobs` and count in `stream`."""
    found = kopf.OperatorRegistry()

    @kopf.on.login(registry=found, backoff=LOGIN_BACKOFF_SECONDS)
    async def login(**_: Any) -> kopf.AiohttpSession:
        return await kopf_session.session(environ, stream)

    # kopf names the parameter `type`.
    @kopf.on.event(*GPUJOBS, registry=found)
    async def gpujob(type: str | None, body: Mapping[str, Any], **_: Any) -> None:  # noqa: A002
        process_event(gpujobs, stream, body, gone=type == "DELETED")

    return found


def process_event(
    gpujobs: GpuJobs, stream: GpuJobStream, body: Mapping[str, Any], *, gone: bool
) -> None:
    """Process one event; skip a GPUJob that violates the schema."""
    try:
        job = msgspec.convert(dict(body), ReadableGpuJob).cached
    except (msgspec.ValidationError, RecursionError) as error:
        stream.skip(_title(body), str(error))
        return
    stream.record_read(_title(body))
    if gone:
        gpujobs.remove(job)
    else:
        gpujobs.upsert(job)


def settings() -> kopf.OperatorSettings:
    """Make kopf a mere listener: it posts nothing, needs no peers, and looks for no new kinds."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.peering.standalone = True
    chosen.scanning.disabled = True
    chosen.persistence.diffbase_storage = NoLastState()
    chosen.persistence.progress_storage = NoProgress()
    chosen.persistence.finalizer = NO_FINALIZER
    chosen.watching.inactivity_timeout = 70.0
    # Also after each error of the API server within a watch (`kopf_session`): kopf then lists
    # again.
    chosen.watching.reconnect_backoff = 1.0
    chosen.process.ultimate_exiting_timeout = 10.0
    # At its start kopf receives every GPUJob at once. To process all of them concurrently would
    # block the event loop for longer than a Lease's duration. Those that wait for one of its
    # workers are kept whole, in ten times the memory of what the index keeps of them. So they are
    # processed one by one, and a worker waits for a second event only as long as it takes to see
    # that there is none.
    chosen.watching.initial_streaming = True
    chosen.queueing.worker_limit = 100
    chosen.queueing.idle_timeout = 0.01
    return chosen


def _title(body: Mapping[str, Any]) -> str:
    meta = body.get("metadata", {})
    return f"{meta.get('namespace')}/{meta.get('name')}"
