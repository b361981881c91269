# SPDX-License-Identifier: Apache-2.0
"""Time-window reservations: GPUReservations as windows of the queue, and their statuses."""
