# SPDX-License-Identifier: Apache-2.0
"""The dashboard's queries as Grafana sends them, with all namespaces chosen."""

import panels

import dashboard

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
    sent = {expr.replace("$namespace", ".*") for _, expr in panels.iterate_queries(dashboard.ROWS)}
    return {expr for expr in sent if any(word in expr for word in OF_A_DRIVER) == of_a_driver}


def empty(prometheus, wanted):
    """Those to which it has no answer."""
    return sorted(expr for expr in wanted if not prometheus.query(expr))
