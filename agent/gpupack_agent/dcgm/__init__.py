# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's DCGM exporter, a second source of a GPU's state on nodes where it runs.

    pods of the node, or a URL ─► address ─► exporter ── GET /metrics ─► figures
                                                                           │
    NVML ─► findings ──────────────────────────────► fields.merged ◄───────┘

`fields` contains the table with the source that counts for each fact. The exporter only adds facts:
the driver's own values take precedence, and an exporter improves no GPU's health.
"""
