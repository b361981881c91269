# SPDX-License-Identifier: Apache-2.0
"""Shares that are held to their limits by CUDA MPS.

The supervisor, a DaemonSet of its own, runs one MPS daemon for each GPU of which limited shares are
held. Agent and supervisor know each other by a folder of the host alone.
"""
