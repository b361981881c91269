# SPDX-License-Identifier: Apache-2.0
"""The node agent: knows the node's GPUs and hands them to containers.

    inventory ─► roster ─┬─► report ─► gpunode      GPUNode status, when something changes
                         └─► tickets ─► plugin ◄─ registration      the kubelet counts tickets
                                          │ PreStartContainer
                                          ▼
    pods, podresources ─► identity ─► prestart ─► claim, holders ─► cdi

* `inventory`: what GPUs there are: simulated, or from NVML.
* `roster`: what was ever seen; a GPU that disappears stays, as Failed.
* `tickets`, `desk`, `plugin`, `registration`: the kubelet's device plugin API, for each resource.
* `tenure`, `observer`: whether another device plugin serves this node, and who holds its GPUs.
* `pods`, `podresources`, `cgroups`: what API server, kubelet and kernel say of this node's pods.
* `identity`: which pod a PreStartContainer call is for.
* `claim`: may this container start, and with which devices? Pure.
* `holders`: which pod holds which device, and whether a predecessor is gone. Pure.
* `prestart`: observe, decide, act, at each container start.
* `cdi`: specs for the container runtime; also the durable record of who was given what.
* `heartbeat`, `probe`: signs of life for the cluster and for the kubelet.
"""

__version__ = "0.1.0"
