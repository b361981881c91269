# SPDX-License-Identifier: Apache-2.0
"""Whole rows in registers."""
