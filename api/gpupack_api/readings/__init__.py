# SPDX-License-Identifier: Apache-2.0
"""What the agents' metrics tell of each GPU, for those who look at nodes.

    pods of the agents ─► agent_pods ─► gauge ── GET /metrics ─► agents
                                          └─► node views: temperature, power, use

Nothing is decided by it. An agent that is slow, endless or broken costs a few seconds of one of a
few turns, and its GPUs have no readings.
"""
