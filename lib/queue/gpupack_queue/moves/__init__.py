# SPDX-License-Identifier: Apache-2.0
"""Moves of running jobs: for maintenance, and so that free GPUs come together."""
