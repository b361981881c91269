# SPDX-License-Identifier: Apache-2.0
"""Time-window reservations: GPUs that a tenant reserves from one time to another."""
