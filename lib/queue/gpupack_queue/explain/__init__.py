# SPDX-License-Identifier: Apache-2.0
"""The explanation of a wait: its reason, the estimated start, and what would help."""
