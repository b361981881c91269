# SPDX-License-Identifier: Apache-2.0
"""The check whether a host is ready for gpupack, and of the changes it needs.

    files under the host's root ─► `host.Host` ─► `checks` ─► findings ─► `report`

* `runtime`: settings of containerd and CRI-O. `kernel`: cgroups. `pci`: bridges between GPUs.
* `host`: everything else, and the description of the host.
* `checks`: one function for each finding. `report`: the findings as text or JSON.

It queries no driver and no daemon. It only reads files, which changes nothing on the host.
"""
