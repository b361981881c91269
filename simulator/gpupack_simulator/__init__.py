# SPDX-License-Identifier: Apache-2.0
"""Replays traces through the policies of gpupack_core: what fits, what waits, what is wasted."""
