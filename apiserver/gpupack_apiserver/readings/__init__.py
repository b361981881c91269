# SPDX-License-Identifier: Apache-2.0
"""The agents' metrics of each GPU, for views of nodes.

    pods of the agents ─► agent_pods ─► agent_poller ── GET /metrics ─► agents
                                             └─► node views: temperature, power, use

No decision uses them. An agent that is slow, sends without end or is broken occupies one of a few
connections for some seconds, and its GPUs have no readings.
"""
