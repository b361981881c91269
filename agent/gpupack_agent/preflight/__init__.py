# SPDX-License-Identifier: Apache-2.0
"""Checks whether a host is ready for gpupack, and says what to change.

    files under the host's root ─► `host.Host` ─► `checks` ─► findings ─► `report`

* `runtime`: containerd's and CRI-O's settings. `kernel`: cgroups. `pci`: bridges between GPUs.
* `host`: everything else, and the whole.
* `checks`: one function for each finding. `report`: as text or JSON.

It asks no driver and no daemon: reading files needs no privilege, and changes nothing of what is
checked.
"""
