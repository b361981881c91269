# SPDX-License-Identifier: Apache-2.0
"""Backfill reservations: the capacity that is reserved for queue heads."""
