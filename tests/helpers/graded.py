# SPDX-License-Identifier: Apache-2.0
"""The GPUs of a scan with their grades, as the agent of a new node shows them."""

from gpupack_agent.known_devices import KnownDevices


def graded(found):
    """Return the devices of one scan, in order of index."""
    known = KnownDevices()
    known.update(found)
    return known.findings.devices
