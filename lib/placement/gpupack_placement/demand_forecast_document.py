# SPDX-License-Identifier: Apache-2.0
"""A forecast as a JSON-ready dict and back, for a mix that is known and need not be learned.

    {"schema": 1, "churnPercent": 100,
     "demands": [{"count": 460, "gpus": 1, "cpuMilli": 8000, "memoryMiB": 16384},
                 {"count": 240, "shareMilli": 500, "shareMemoryMiB": 8192, "models": ["T4"]}]}

`count`: how often such a request comes, in any unit that is the same for all. `minMemoryMiB`: as in
Request, optional. Requests for MIG slices are written as policies see them: as a pod without GPUs.
"""

from collections.abc import Mapping
from typing import Any, Final

from gpupack_devices.errors import DecisionError
from gpupack_devices.units import WHOLE_GPU, MiB, MilliCpu, MilliGpu
from gpupack_placement.demand_forecast import DemandForecast, RequestMix
from gpupack_placement.errors import InvalidSnapshot
from gpupack_placement.fields import Fields
from gpupack_placement.request import Request, Share

SCHEMA: Final = 1
COUNTS: Final = 1_000_000
"""Approximate sum of the counts that are written."""

_MAX_PERCENT = 10_000
_MAX_GPUS = 1 << 16
_FIELDS = (
    "count",
    "gpus",
    "shareMilli",
    "shareMemoryMiB",
    "models",
    "minMemoryMiB",
    "cpuMilli",
    "memoryMiB",
)


def dump_forecast(forecast: DemandForecast) -> dict[str, Any]:
    """Return the document of a forecast; weights to a millionth, churn to a percent."""
    return {
        "schema": SCHEMA,
        "churnPercent": round(forecast.churn * 100),
        "demands": [
            {"count": max(round(demand.weight * COUNTS), 1), **_request_dict(demand.request)}
            for demand in forecast.mix.demands
        ],
    }


def load_forecast(document: Mapping[str, Any]) -> DemandForecast:
    """Return the forecast that a document describes.

    Raises:
        InvalidSnapshot: the first field that is wrong, with path and value.
    """
    top = Fields.of(document)
    top.reject_unknown("schema", "churnPercent", "demands")
    if top.number("schema") != SCHEMA:
        raise top.error("schema", f"is not the version that can be read, {SCHEMA}")
    churn_percent = top.number("churnPercent", 100, maximum=_MAX_PERCENT)
    demands = [(_request(each), each.number("count", minimum=1)) for each in top.objects("demands")]
    return DemandForecast(RequestMix.of(demands), churn_percent / 100)


def _request(fields: Fields) -> Request:
    fields.reject_unknown(*_FIELDS)
    try:
        return Request(
            gpus=fields.number_or_none("gpus", maximum=_MAX_GPUS),
            share=_share(fields),
            models=tuple(fields.strings("models")),
            min_memory=MiB(fields.number("minMemoryMiB", 0)),
            cpu=MilliCpu(fields.number("cpuMilli", 0)),
            memory=MiB(fields.number("memoryMiB", 0)),
        )
    except InvalidSnapshot:
        raise
    except DecisionError as error:
        raise InvalidSnapshot(f"{fields.path}: {error}") from error


def _share(fields: Fields) -> Share | None:
    milli = fields.number_or_none("shareMilli", minimum=1, maximum=WHOLE_GPU - 1)
    if milli is None:
        return None
    return Share(MilliGpu(milli), MiB(fields.number("shareMemoryMiB", 0)))


def _request_dict(request: Request) -> dict[str, Any]:
    asked: dict[str, Any] = {"cpuMilli": request.cpu, "memoryMiB": request.memory}
    if request.models:
        asked["models"] = list(request.models)
    if request.min_memory:
        asked["minMemoryMiB"] = request.min_memory
    if request.share is None:
        return {"gpus": request.gpus or 0, **asked}
    share = {"shareMilli": request.share.milli, "shareMemoryMiB": request.share.memory}
    return {**share, **asked}
