# SPDX-License-Identifier: Apache-2.0
"""The errors of the queue's settings."""

from gpupack_devices.errors import Invalid


class InvalidQuota(Invalid):
    """A contradictory limit, quota or cohort, or a cycle of cohorts."""


class InvalidWindow(Invalid):
    """A reservation whose times make no sense."""
