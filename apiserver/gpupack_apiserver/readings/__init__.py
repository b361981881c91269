# SPDX-License-Identifier: Apache-2.0
"""The agents' metrics of each GPU, for views of nodes.

    pods of the agents ─► agent_pods ─► gauge ── GET /metrics ─► agents
                                         └─► node views: temperature, power, use

No decision uses them. An agent that is slow, endless or broken costs a few seconds of one of a few
turns, and its GPUs have no readings.
"""
