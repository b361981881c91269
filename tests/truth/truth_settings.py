# SPDX-License-Identifier: Apache-2.0
"""The extender's policy and its demand forecast."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from harness import Kube
from parts import SCHEDULER, rolled_out
from truth_jobs import forecast_text

SETTINGS = ("GPUPACK_POLICY", "GPUPACK_DEMAND_FORECAST")


@contextlib.contextmanager
def settings_kept(system: Kube) -> Iterator[None]:
    """Restore the settings at exit."""
    before = _settings(system)
    try:
        yield
    finally:
        _set(system, *(f"{n}={before[n]}" if n in before else f"{n}-" for n in SETTINGS))


def use(system: Kube, policy: str, forecast: dict[str, Any]) -> None:
    """Restart the extender with this policy and this demand forecast."""
    _set(system, f"GPUPACK_POLICY={policy}", f"GPUPACK_DEMAND_FORECAST={forecast_text(forecast)}")


def _set(system: Kube, *changes: str) -> None:
    system.insist("set", "env", SCHEDULER, "--containers=extender", *changes)
    rolled_out(system, SCHEDULER)


def _settings(system: Kube) -> dict[str, str]:
    deployment = json.loads(system.insist("get", SCHEDULER, "-o", "json"))
    containers = deployment["spec"]["template"]["spec"]["containers"]
    (extender,) = [each for each in containers if each["name"] == "extender"]
    return {e["name"]: e.get("value", "") for e in extender["env"] if e["name"] in SETTINGS}
