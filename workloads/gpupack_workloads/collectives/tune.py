# SPDX-License-Identifier: Apache-2.0
"""Measures NCCL's all-reduce with other settings, for comparison with its defaults.

NCCL reads its settings when a process starts, so each is tried by new processes: the largest
all-reduce once more. The defaults are tried again too, because two runs of one setting differ.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import msgspec

from gpupack_workloads.collectives.options import CollectivesOptions
from gpupack_workloads.collectives.rank import measure_largest
from gpupack_workloads.distributed.launch import launch
from gpupack_workloads.errors import BadArgument, NoSuchDevice, WorkloadError
from gpupack_workloads.results import Result, Scalar
from gpupack_workloads.settings import Gang

logger = logging.getLogger(__name__)

Setting = dict[str, str]

# Each with multicast off (settings.NO_MULTICAST), and takes six seconds. On four H200s fewer
# channels (16: 333 GB/s), fewer threads (256: 350), LL128 (336), larger buffers (8 and 16 MiB: 359
# to 361) and registered buffers (362) were tried as well: no better than the defaults (362).
SETTINGS: tuple[Setting, ...] = (
    {},
    {"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"},
    {"NCCL_ALGO": "Tree", "NCCL_PROTO": "Simple"},
    {"NCCL_MIN_CTAS": "32", "NCCL_MAX_CTAS": "32"},
)


def require_tunable(gang: Gang, *, gpus: bool) -> None:
    """Make sure, before any work, that NCCL is what will run, and that its settings are ours alone.

    Other workers would have to agree about every setting that failed in one of them.

    Raises:
        BadArgument: the gang has other workers, or wants gloo.
        NoSuchDevice: there are no GPUs.
    """
    if gang.workers > 1:
        raise BadArgument(f"--tune is for one worker, and this gang has {gang.workers}")
    if gang.backend == "gloo":
        raise BadArgument("--tune tries NCCL's settings, and this gang wants gloo")
    if not gpus:
        raise NoSuchDevice("--tune tries NCCL's settings, and NCCL needs GPUs")


def tried(options: CollectivesOptions, gang: Gang) -> dict[str, float]:
    """Return the bus bandwidth of the largest all-reduce by setting.

    Raises:
        WorkloadError: no setting worked.
    """
    found: dict[str, float] = {}
    for number, setting in enumerate(SETTINGS):
        name = " ".join(f"{key}={value}" for key, value in setting.items()) or "defaults"
        attempt = replace(gang, run=f"{gang.run}-setting-{number}")
        try:
            with environment(setting):
                one = launch(measure_largest, options, attempt)
        except WorkloadError as error:
            logger.warning("%s: %s", name, error)
            continue
        found[name] = float(one.metrics["all_reduce_bus_gb_per_s"])
        logger.info("%s: %.1f GB/s", name, found[name])
    if not found:
        raise WorkloadError("no setting of NCCL worked: see the log above")
    return found


def compared(result: Result, bandwidths: dict[str, float]) -> Result:
    """Add to a result how its all-reduce compares with the best setting."""
    best = max(bandwidths, key=bandwidths.__getitem__)
    ours = float(result.metrics["all_reduce_bus_gb_per_s"])
    found: dict[str, Scalar] = {
        "all_reduce_nccl_best_ratio": round(ours / bandwidths[best], 4),
        "nccl_best_bus_gb_per_s": bandwidths[best],
        "nccl_best_setting": best,
    }
    rows: list[dict[str, Scalar]] = [
        {"setting": name, "bus_gb_per_s": bandwidth} for name, bandwidth in bandwidths.items()
    ]
    return msgspec.structs.replace(
        result, metrics=found | result.metrics, rows=[*result.rows, *rows]
    )


@contextmanager
def environment(setting: Setting) -> Iterator[None]:
    """Have these variables for as long as the context lasts."""
    before = {name: os.environ.get(name) for name in setting}
    os.environ.update(setting)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
