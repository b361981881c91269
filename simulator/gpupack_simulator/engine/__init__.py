# SPDX-License-Identifier: Apache-2.0
"""Discrete events over core's cluster: what happens when, and what it leaves behind."""
