# SPDX-License-Identifier: Apache-2.0
"""The node agent, which observes the node's GPUs and gives them to containers.

    inventory ─► known devices ─┬─► report ─► gpunode      GPUNode status, when something changes
                                └─► device tokens ─► device plugin ◄─ registration
                                                         │ PreStartContainer, by the kubelet
                                                         ▼
           pods, podresources ─► identity ─► prestart ─► admission, holders ─► cdi

* `host`: the agent of a machine without a cluster: inventory, health, metrics.
* `inventory`: the list of GPUs, simulated or from NVML.
* `dcgm`: the facts that DCGM exporter adds, where it runs.
* `known_devices`: all GPUs that were ever seen; a GPU that disappears stays, as Failed.
* `device_tokens`, `device_plugin`, `plugin_servicer`, `registration`: the kubelet's device plugin
  API, for each resource.
* `node_mode`, `observer`: whether another device plugin serves this node, and the pods that hold
  its GPUs.
* `pods`, `podresources`, `cgroups`: the state of this node's pods, from API server, kubelet and
  kernel.
* `identity`: the pod that a PreStartContainer call is for.
* `admission`: the decision whether a container may start, and with which devices. Pure.
* `holders`: the pods that hold each device, and whether a predecessor is gone. Pure.
* `prestart`: observe, decide, act, at each container start.
* `cdi`: specs for the container runtime; also the durable record of the devices of each container.
* `housekeeping`: once a second: remove specs of dead pods, publish device tokens to the kubelet.
* `liveness`, `probe`: signs of life for the kubelet. `watchdog`: the end of an agent that hangs.
"""
