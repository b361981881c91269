# SPDX-License-Identifier: Apache-2.0
"""Preemption: which running jobs end so that a pending job starts."""
