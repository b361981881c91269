# SPDX-License-Identifier: Apache-2.0
"""Pending jobs: in classes of equal requests, in their order, and those that can never start."""
