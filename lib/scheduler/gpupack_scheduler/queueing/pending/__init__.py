# SPDX-License-Identifier: Apache-2.0
"""Requests that wait in the queue, and the limits on what one namespace may have there."""
