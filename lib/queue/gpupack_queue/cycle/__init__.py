# SPDX-License-Identifier: Apache-2.0
"""A cycle: one pass over the pending jobs, made of actions."""
