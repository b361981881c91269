# SPDX-License-Identifier: Apache-2.0
"""Quotas in a tree of cohorts, their usage, and the places of a job within its quota."""
