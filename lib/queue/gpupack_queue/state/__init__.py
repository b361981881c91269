# SPDX-License-Identifier: Apache-2.0
"""The state of a queue between two cycles, and the working copy of one cycle."""
