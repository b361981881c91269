# SPDX-License-Identifier: Apache-2.0
"""Discrete events over core's cluster, and the records of a run."""
