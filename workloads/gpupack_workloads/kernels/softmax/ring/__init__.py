# SPDX-License-Identifier: Apache-2.0
"""Rows that pass through a ring of chunks in shared memory."""
