# SPDX-License-Identifier: Apache-2.0
"""Named limits of a healthy GPU; the command line can replace each.

A limit's name says what is measured, in which unit, and whether it is the most (`max_`) or the
least (`min_`) that is healthy. None means: measured and reported, but not judged.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gpupack_workloads.burn_in.models import DATA_SHEETS, MEASURED
from gpupack_workloads.errors import BadArgument
from gpupack_workloads.settings import Gang, Options

Kind = Literal["memory", "compute", "bandwidth", "thermal", "errors"]
Limits = Mapping[str, float | None]
Basis = Literal["arguments", "measured", "data sheet", "peers", "unjudged"]
"""What a GPU's speed is held to."""


@dataclass(frozen=True)
class Limit:
    """A limit of one measurement.

    Attributes:
        kind: which part of the GPU is suspect where the limit does not hold.
        default: on a GPU of which nothing is known.
        meaning: what is measured, for the user.
    """

    kind: Kind
    default: float | None
    meaning: str


LIMITS: dict[str, Limit] = {
    "max_wrong_words": Limit("memory", 0, "64-bit words that were read back changed"),
    "max_wrong_products": Limit(
        "compute", 0, "products that differ from the first, or are not what they should be"
    ),
    "min_gemm_tflops": Limit("compute", None, "bf16 products, checksums included"),
    "min_steady_ratio": Limit("compute", 0.7, "slowest tenth of all products over the median"),
    "min_device_copy_gb_per_s": Limit("bandwidth", None, "copy within the GPU, read and written"),
    "min_host_to_device_gb_per_s": Limit("bandwidth", None, "copy from pinned host memory"),
    "min_device_to_host_gb_per_s": Limit("bandwidth", None, "copy to pinned host memory"),
    "max_changed_copies": Limit("bandwidth", 0, "copies that arrived changed"),
    "max_temperature_c": Limit("thermal", 88, "hottest reading of the GPU"),
    "max_memory_temperature_c": Limit("thermal", 95, "highest temperature of its memory"),
    "max_thermal_slowdown_ratio": Limit(
        "thermal", 0.05, "readings in which the driver slowed the GPU because of heat"
    ),
    "max_hardware_slowdown_ratio": Limit(
        "thermal", 0, "readings in which the board slowed the GPU: heat or power brake"
    ),
    "min_sm_clock_ratio": Limit("thermal", 0.45, "median clock under load over the highest one"),
    "max_uncorrected_ecc_errors": Limit("errors", 0, "new ones"),
    "max_corrected_ecc_errors": Limit("errors", 10, "new ones"),
    "max_remapped_rows": Limit("errors", 0, "new ones for uncorrectable errors"),
    "max_remapping_troubles": Limit("errors", 0, "a row waits for a reset, or cannot be remapped"),
    "max_pcie_replays": Limit("errors", 100, "new ones"),
    "max_xids": Limit("errors", 0, "XIDs that the driver raised for this GPU"),
    "max_recovery_action": Limit("errors", 0, "what the driver wants: 1 reset, 2 reboot, 3 drain"),
    "max_device_failures": Limit("errors", 0, "CUDA errors that ended the run"),
}

# What a CPU's speed is says nothing.
NOT_ON_CPUS: dict[str, float | None] = {"min_steady_ratio": None}


@dataclass(frozen=True, kw_only=True)
class BurnInOptions(Options):
    """Options of `burn-in`.

    Attributes:
        seconds: how long all of it may take; None takes what suits the device.
        memory_percent: how much of the free memory is tested.
        limits: replacements by name.
        gang: the workers of this job, whose GPUs are compared if no table has the model.
    """

    seconds: int | None = None
    memory_percent: float = 90
    limits: Limits = field(default_factory=dict)
    gang: Gang = field(default_factory=Gang)


SPEED = "min_gemm_tflops"


def limits_for(
    model: str, *, simulated: bool, replaced: Limits, of_peers: Limits | None = None
) -> dict[str, float | None]:
    """Return every limit for a GPU: the user's, the model's, its peers', or the general one.

    Args:
        model: the driver's name of the GPU.
        simulated: it is a CPU.
        replaced: the user's, by name.
        of_peers: from GPUs of the same model.
    """
    general = {name: limit.default for name, limit in LIMITS.items()}
    known: Limits = NOT_ON_CPUS if simulated else {**(of_peers or {}), **of_model(model)}
    return general | dict(known) | dict(replaced)


def of_model(model: str) -> dict[str, float]:
    """Return what is known of a model, or nothing."""
    if model in MEASURED:
        return MEASURED[model]
    return DATA_SHEETS[model].limits() if model in DATA_SHEETS else {}


def basis_of(model: str, *, simulated: bool, replaced: Limits, of_peers: Limits) -> Basis:
    """Return what the speed of products is held to."""
    if SPEED in replaced:
        return "unjudged" if replaced[SPEED] is None else "arguments"
    if simulated:
        return "unjudged"
    if of_model(model):
        return "measured" if model in MEASURED else "data sheet"
    return "peers" if SPEED in of_peers else "unjudged"


def parse_limits(texts: tuple[str, ...]) -> dict[str, float | None]:
    """Read NAME=NUMBER or NAME=none, each name once.

    Raises:
        BadArgument: a name that there is not, or no number.
    """
    parsed: dict[str, float | None] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in LIMITS:
            raise BadArgument(f"there is no limit {name!r}; there are {', '.join(LIMITS)}")
        if name in parsed:
            raise BadArgument(f"limit {name} is given twice")
        parsed[name] = None if value == "none" else _number(name, value)
    return parsed


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError as error:
        raise BadArgument(f"limit {name} is {text!r}, neither a number nor none") from error
    if not math.isfinite(number) or number < 0:
        raise BadArgument(f"limit {name} is {text}; it must be 0 or more, and finite")
    return number
