# SPDX-License-Identifier: Apache-2.0
"""Discrete events over placement's cluster, and the records of a run."""
