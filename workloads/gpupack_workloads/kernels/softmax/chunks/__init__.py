# SPDX-License-Identifier: Apache-2.0
"""Rows that are read in chunks, and once more from the cache."""
