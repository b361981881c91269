# SPDX-License-Identifier: Apache-2.0
"""Acts on what the queue decides: everything here is a task of the process that leads.

gpupack_scheduling.queueing ── who goes in, who ends, who is told ──► writes to pods and quotas
"""
