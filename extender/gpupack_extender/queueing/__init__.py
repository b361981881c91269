# SPDX-License-Identifier: Apache-2.0
"""Actions on the queue's decisions: each module here is a task of the leading process.

gpupack_scheduler.queueing.QueueOwner ── notices, evictions, messages ──► writes to pods, quotas
"""
