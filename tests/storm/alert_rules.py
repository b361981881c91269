# SPDX-License-Identifier: Apache-2.0
"""The chart's rules with time running faster: for storms that have minutes and no hour."""

import pathlib
import re
from typing import Any

import yaml
from harness import ROOT

RULES = ROOT / "charts/gpupack/files/monitoring/rules.yaml"
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
LEAST_WINDOW_SECONDS = 10
"""A rate needs some samples."""


def seconds_of(text: str) -> int:
    """As `5m`."""
    return int(text[:-1]) * UNITS[text[-1]]


def faster(speed: float, folder: pathlib.Path) -> pathlib.Path:
    """Every `for` and every window shorter by this factor; thresholds stay. 1: the file itself."""
    if speed == 1:
        return RULES
    document = yaml.safe_load(RULES.read_text())
    for rule in (rule for group in document["groups"] for rule in group["rules"]):
        rule["expr"] = re.sub(
            r"\[(\d+[smhd])\]",
            lambda found: f"[{max(round(seconds_of(found[1]) / speed), LEAST_WINDOW_SECONDS)}s]",
            rule["expr"],
        )
        if "for" in rule:
            rule["for"] = f"{max(round(seconds_of(rule['for']) / speed), 1)}s"
    path = folder / "rules.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def waits_seconds(alert: str) -> int:
    """For how long it waits, by the chart's file."""
    groups: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"]
    (rule,) = (rule for group in groups for rule in group["rules"] if rule.get("alert") == alert)
    return seconds_of(rule["for"])
