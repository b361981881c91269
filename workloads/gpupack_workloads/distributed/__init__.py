# SPDX-License-Identifier: Apache-2.0
"""Gangs of processes: `launch` starts this worker's, `rank` is the environment of each."""
