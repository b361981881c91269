# SPDX-License-Identifier: Apache-2.0
"""The dashboard's queries as Grafana sends them, with all namespaces chosen."""

import json
import pathlib

DASHBOARD = pathlib.Path(__file__).parents[2] / "charts/gpupack/files/monitoring/dashboard.json"
QUERIES = [
    (panel["title"], target["expr"])
    for panel in json.loads(DASHBOARD.read_text())["panels"]
    for target in panel.get("targets", ())
]
"""Each panel's title with one of its expressions."""
OF_A_DRIVER = (
    "DCGM_",
    "gpupack_agent_gpu_throttled",
    "pod_gpu_memory_used",
    "gpu_power_watts",
    "share_overruns",
)
"""Simulated GPUs have no figures, and nothing limits their shares."""


def queries(*, of_a_driver):
    """Those that a driver's figures answer, or all others."""
    sent = {expr.replace("$namespace", ".*") for _, expr in QUERIES}
    return {expr for expr in sent if any(word in expr for word in OF_A_DRIVER) == of_a_driver}


def empty(prometheus, wanted):
    """Those to which it has no answer."""
    return sorted(expr for expr in wanted if not prometheus.query(expr))
