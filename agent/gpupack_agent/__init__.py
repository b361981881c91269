# SPDX-License-Identifier: Apache-2.0
"""The node agent: knows the node's GPUs and hands them to containers.

    inventory ─► known devices ─┬─► report ─► gpunode      GPUNode status, when something changes
                                └─► tickets ─► device plugin ◄─ registration    the kubelet counts
                                                 │ PreStartContainer
                                                 ▼
           pods, podresources ─► identity ─► prestart ─► admission, holders ─► cdi

* `host`: the part of it that a machine without a cluster has: inventory, health, metrics.
* `inventory`: what GPUs there are: simulated, or from NVML.
* `dcgm`: what DCGM exporter adds to that, where it runs.
* `known_devices`: what was ever seen; a GPU that disappears stays, as Failed.
* `tickets`, `device_plugin`, `plugin_servicer`, `registration`: the kubelet's device plugin API,
  for each resource.
* `node_mode`, `observer`: whether another device plugin serves this node, and who holds its GPUs.
* `pods`, `podresources`, `cgroups`: what API server, kubelet and kernel say of this node's pods.
* `identity`: which pod a PreStartContainer call is for.
* `admission`: may this container start, and with which devices? Pure.
* `holders`: which pod holds which device, and whether a predecessor is gone. Pure.
* `prestart`: observe, decide, act, at each container start.
* `cdi`: specs for the container runtime; also the durable record of who was given what.
* `housekeeping`: once a second: specs of dead pods go, the kubelet hears what there is.
* `liveness`, `probe`: signs of life for the kubelet. `watchdog`: an end for an agent that hangs.
"""

__version__ = "0.1.0"
