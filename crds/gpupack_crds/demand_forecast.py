# SPDX-License-Identifier: Apache-2.0
"""The demand forecast for policies that look ahead.

The scheduler writes it into the status of GPUCohort `cluster`; the code that places by it, and
what-if answers, read it there. Its fields are those of gpupack_placement.demand_forecast_document.
"""

from typing import Annotated, Any, Final

from gpupack_crds.devices import MAX_MEMORY_MIB
from gpupack_crds.wire import Wire, described

MAX_DEMANDS: Final = 512
"""Maximum kinds of requests; of more, the most frequent are kept."""

MAX_MODELS_ASKED: Final = 16
_MAX_AMOUNT: Final = 1 << 40
_LONG: Final[dict[str, Any]] = {"format": "int64"}


class Demand(Wire, frozen=True):
    """Requests of one kind."""

    count: Annotated[
        int, described("Number of requests of this kind in a million.", ge=1, le=1_000_000)
    ]
    gpus: Annotated[int, described("Whole GPUs.", ge=0, le=4096)] | None = None
    share_milli: (
        Annotated[int, described("Thousandths of one GPU's compute, for a share.", ge=1, le=999)]
        | None
    ) = None
    share_memory_mib: Annotated[
        int, described("Memory of that GPU, in MiB.", ge=0, le=MAX_MEMORY_MIB + 1, schema=_LONG)
    ] = 0
    models: Annotated[
        tuple[Annotated[str, described("A model.", max_length=64)], ...],
        described("Models to choose from; empty: any.", max_length=MAX_MODELS_ASKED),
    ] = ()
    min_memory_mib: Annotated[
        int,
        described("Minimum memory of each GPU, in MiB.", ge=0, le=MAX_MEMORY_MIB + 1, schema=_LONG),
    ] = 0
    cpu_milli: Annotated[
        int, described("Thousandths of a CPU.", ge=0, le=_MAX_AMOUNT, schema=_LONG)
    ] = 0
    memory_mib: Annotated[int, described("Memory, in MiB.", ge=0, le=_MAX_AMOUNT, schema=_LONG)] = 0


class DemandForecast(Wire, frozen=True):
    """Expected requests, and the rate of departures."""

    churn_percent: Annotated[
        int, described("Recent departures for each 100 recent arrivals.", ge=0, le=10_000)
    ] = 0
    demands: Annotated[
        tuple[Demand, ...],
        described(
            "Request mix, the most frequent kind first.",
            max_length=MAX_DEMANDS,
            schema={"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
