# SPDX-License-Identifier: Apache-2.0
"""The report of `make demo-gpu`: JSON for programs, Markdown for people."""

import datetime as dt
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Json = dict[str, Any]
LIMIT_SECONDS = 300


def build(outcome: Json, phases: Mapping[str, float], *, seconds: float, versions: Json) -> Json:
    """All that is worth keeping."""
    now = dt.datetime.now(dt.UTC)
    return {
        "written": now.isoformat(timespec="seconds"),
        "succeeded": not outcome["error"],
        "error": outcome["error"],
        "seconds": seconds,
        "limit_seconds": LIMIT_SECONDS,
        "phases": dict(phases),
        "gpus": outcome.get("gpus", []),
        "driver": outcome.get("driver", ""),
        "versions": versions,
        "results": outcome["results"],
    }


def write(report: Json, folder: Path) -> Path:
    """Write both forms; returns the path of the JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"demo-gpu-{len(report['gpus'])}x{short_model(report)}"
    path = folder / f"{name}.json"
    path.write_text(json.dumps(report, indent=1) + "\n")
    path.with_suffix(".md").write_text(render(report))
    return path


def short_model(report: Json) -> str:
    """`NVIDIA H200` as `h200`."""
    models = {str(gpu["model"]) for gpu in report["gpus"]}
    words = "-".join(sorted(models)).lower().replace("nvidia ", "").split()
    return "-".join(words) or "none"


def render(report: Json) -> str:
    """The report for people."""
    outcome = "succeeded" if report["succeeded"] else f"failed: {report['error']}"
    lines = [
        f"# demo-gpu on {gpus_in_words(report)}",
        "",
        f"{report['written']}: {outcome}; {report['seconds']:.0f} s of {LIMIT_SECONDS} s allowed.",
        "",
        f"Driver {report['driver']}; "
        + ", ".join(f"{key} {value}" for key, value in report["versions"].items()),
        "",
        "| phase | seconds |",
        "|---|---|",
        *(f"| {name} | {seconds:.1f} |" for name, seconds in report["phases"].items()),
        "",
        "| what was checked | what came out |",
        "|---|---|",
        *(f"| {result['check']} | {in_words(result)} |" for result in report["results"]),
    ]
    return "\n".join(lines) + "\n"


def gpus_in_words(report: Json) -> str:
    """`2 x NVIDIA H200 (143771 MiB)`."""
    gpus = report["gpus"]
    if not gpus:
        return "a host whose GPUs were never reported"
    return f"{len(gpus)} x {gpus[0]['model']} ({gpus[0]['memoryMiB']} MiB)"


def in_words(result: Json) -> str:
    """The outcome of one check in a table's cell."""
    if "headline" in result:
        return headline(result)
    if "results" in result:
        each = result["results"].items()
        return "; ".join(f"{name}: {headline(measured)}" for name, measured in each)
    if "figures" in result:
        return json.dumps(result["figures"])
    return "yes"


def headline(measured: Json) -> str:
    """The headline, and our Triton kernel's figure where there is one."""
    triton = measured["metrics"].get("triton_tflops")
    return str(measured["headline"]) + (f" (Triton {triton:.0f})" if triton else "")
