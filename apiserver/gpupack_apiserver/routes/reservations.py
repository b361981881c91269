# SPDX-License-Identifier: Apache-2.0
"""GPUReservations, in the namespaces that the caller may see."""

from typing import Annotated, Final

from litestar import get
from litestar.datastructures import State
from litestar.params import QueryParameter

from gpupack_apiserver import problems
from gpupack_apiserver.patterns import KEY, require_cursor
from gpupack_apiserver.rights import sees_nowhere
from gpupack_apiserver.routes.jobs import Namespace
from gpupack_apiserver.routes.parts import Call, parts_of
from gpupack_crds.kinds import GpuReservation
from gpupack_restapi import PREFIX
from gpupack_restapi.reservations import Reservations, ReservationView

MAX_RESERVATIONS: Final = 1000
"""Maximum reservations of one page."""

Limit = Annotated[int, QueryParameter(description="Maximum entries.", ge=1, le=MAX_RESERVATIONS)]
After = Annotated[
    str,
    QueryParameter(description="`next` of the previous page.", max_length=320),
]


@get(f"{PREFIX}/reservations", tags=["jobs"], responses=problems.REFUSALS)
async def reservations(
    request: Call, state: State, namespace: Namespace = "", limit: Limit = 100, after: After = ""
) -> Reservations:
    """List GPUReservations and their current or next window."""
    parts = parts_of(state)
    user = await parts.authenticate(request)
    require_cursor(after, KEY)
    items = parts.model.quotas.reservations.items
    there = {key[0] for key in items}
    seen = await parts.rights.visible(user, "gpureservations", namespace=namespace, existing=there)
    found = {"/".join(key): item for key, item in items.items() if key[0] in seen}
    wanted = [key for key in sorted(found) if key > after]
    shown = wanted[:limit]
    return Reservations(
        tuple(_view(found[key]) for key in shown),
        may_list=not sees_nowhere(user, seen, there),
        total=len(found),
        next=shown[-1] if len(wanted) > limit else "",
    )


def _view(item: GpuReservation) -> ReservationView:
    spec, status = item.spec, item.status
    return ReservationView(
        namespace=item.metadata.namespace,
        name=item.metadata.name,
        model=spec.model,
        gpus=status.gpus or str(spec.total_gpus),
        phase=status.phase,
        window_start=status.window_start or "",
        window_end=status.window_end or "",
        used=status.used,
        held=status.held,
        missing=status.missing,
        recurrence=spec.recurrence or "",
        problem=status.problem,
    )
