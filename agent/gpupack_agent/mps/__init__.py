# SPDX-License-Identifier: Apache-2.0
"""Limited shares, which CUDA MPS enforces.

The supervisor, a separate DaemonSet, runs one MPS daemon for each GPU of which pods hold limited
shares. Agent and supervisor communicate only through a folder of the host.
"""
