# SPDX-License-Identifier: Apache-2.0
"""Decisions about a GPUJob: pure functions of the observed state, without I/O or clock."""
