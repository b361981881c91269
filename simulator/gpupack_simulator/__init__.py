# SPDX-License-Identifier: Apache-2.0
"""Replays traces through the policies of gpupack_core and reports what fits, waits and is wasted."""
