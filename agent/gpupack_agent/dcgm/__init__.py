# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's DCGM exporter, where one runs on the node, as a second source of a GPU's state.

    pods of the node, or a URL ─► address ─► exporter ── GET /metrics ─► figures
                                                                           │
    NVML ─► findings ──────────────────────────────► fields.merged ◄───────┘

`fields` holds the table: which source counts for which fact. The exporter only adds: what the
driver tells itself counts, and no GPU is healthier for what an exporter says.
"""
