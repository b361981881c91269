# SPDX-License-Identifier: Apache-2.0
"""Running jobs: what they hold, when they end, and the cluster after each end."""
