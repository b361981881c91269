# SPDX-License-Identifier: Apache-2.0
"""Requests of pods and GPUJobs, converted once into placement's types.

* `gpu_request`: GPUs, a share or slices, from limits or a spec; `sharing`: which shares may be on
  one GPU.
* `pod_resources`: CPU, memory and device tokens as kube-scheduler and kubelet count them.
* `node_rules`: selectors, affinity and tolerations.
* `pod_request`, `gang_request`: the whole request of one pod, or of all workers of a job.
* `mismatch`: the place of a worker's pod, if the pod's request equals it.
"""
