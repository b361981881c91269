# SPDX-License-Identifier: Apache-2.0
"""The field `reservations` of a scenario, and its conversion into windows of the queue."""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, Struct, field

from gpupack_devices.units import WHOLE_GPU
from gpupack_placement import Request
from gpupack_queue import Quotas, ReservationId, Tenant, Window
from gpupack_queue.quotas.tree import Tree
from gpupack_queue.windows.acceptance import Claim, refused
from gpupack_simulator.errors import InvalidParameter
from gpupack_simulator.inputs.specs import Count, Name, Positive, Time

MAX_WINDOWS = 1000
"""Maximum number of windows of one reservation."""


class ReservationSpec(Struct, rename="camel", forbid_unknown_fields=True):
    """One entry of `reservations`: `gpus` anywhere, or `nodes` with `gpusPerNode` each.

    It is repeated `times` times, `every` so long after the start before.
    """

    name: Name
    tenant: Name
    model: Name
    end: Positive = field(name="to")
    start: Time = field(name="from", default=0.0)
    gpus: Count | None = None
    nodes: Count | None = None
    gpus_per_node: Count | None = None
    every: Positive | None = None
    times: Annotated[int, Meta(ge=1, le=MAX_WINDOWS)] = 1

    def __post_init__(self) -> None:
        """Refuse an amount or times that make no sense."""
        is_whole = self.nodes is not None and self.gpus_per_node is not None
        if (self.gpus is None) != is_whole or (self.nodes is None) != (self.gpus_per_node is None):
            raise ValueError("give either gpus, or nodes and gpusPerNode")
        if not self.start < self.end:
            raise ValueError(f"it ends at {self.end:g}, not after its start at {self.start:g}")
        if (self.every is None) != (self.times == 1):
            raise ValueError("a repeated reservation has every and times; give both or neither")
        if self.every is not None and self.every < self.end - self.start:
            raise ValueError(f"it is repeated every {self.every:g}, before it has ended")


def windows_of(spec: ReservationSpec) -> Iterator[Window]:
    """Yield the windows of the entry. It stands from time 0 on."""
    request = Request(gpus=spec.gpus_per_node or 1, models=(spec.model,))
    for number in range(spec.times):
        later = number * (spec.every or 0.0)
        yield Window(
            reservation_id(spec.tenant, spec.name),
            Tenant(spec.tenant),
            spec.nodes or spec.gpus or 1,
            request,
            spec.start + later,
            spec.end + later,
            0.0,
        )


def reservation_id(tenant: str, name: str) -> ReservationId:
    """Return the name by which the queue knows a reservation."""
    return ReservationId(f"{tenant}/{name}")


def require_within_quotas(specs: list[ReservationSpec], quotas: Quotas) -> None:
    """Refuse reservations of more than their tenants are guaranteed.

    Raises:
        InvalidParameter: a tenant reserves more than its nominal quota at some time.
    """
    claims = [
        Claim(
            reservation_id(spec.tenant, spec.name),
            Tenant(spec.tenant),
            spec.model,
            (spec.nodes or spec.gpus or 1) * (spec.gpus_per_node or 1) * WHOLE_GPU,
            float(number),
            tuple((each.start, each.end) for each in windows_of(spec)),
        )
        for number, spec in enumerate(specs)
    ]
    for name, excess in refused(claims, Tree(quotas, {})).items():
        raise InvalidParameter(
            f"reservation {name} with those above it has more than its tenant's nominal "
            f"{excess.nominal / WHOLE_GPU:g} GPUs at {excess.at:g}; reserve fewer"
        )
