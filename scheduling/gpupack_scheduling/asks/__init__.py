# SPDX-License-Identifier: Apache-2.0
"""What a pod or a GPUJob asks for, read once into core's terms.

* `gpu_ask`: GPUs, a share or slices, of limits or of a spec; `sharing`: with whom a share may be.
* `pod_resources`: CPU, memory and tickets as kube-scheduler and kubelet count them.
* `node_rules`: selectors, affinity and tolerations.
* `pod_ask`, `gang_ask`: all of it, of one pod or of all workers of a job.
* `mismatch`: whether a pod asks for what its worker's place has.
"""
