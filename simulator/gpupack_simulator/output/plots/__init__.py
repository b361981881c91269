# SPDX-License-Identifier: Apache-2.0
"""Plots, one per file: each makes a Figure from digests and keeps no state."""
