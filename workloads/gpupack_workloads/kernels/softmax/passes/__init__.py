# SPDX-License-Identifier: Apache-2.0
"""Rows of any length, read twice."""
