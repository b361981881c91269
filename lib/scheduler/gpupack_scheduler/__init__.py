# SPDX-License-Identifier: Apache-2.0
"""The ledger, the requests and the queue: decisions without writes.

    API server ─ watches ─► ledger.stores ─► ledger ─► Cluster
    pods, GPUJobs ─► requests ─► Request ─┐
    GPUQuotas ─► queueing.quotas ─────────┼─► queueing.queue_owner ─► gpupack_queue ─► placements
                                          └─► planning: the answer to one plan call

The extender carries out these decisions. A component that only needs to know what would be decided
builds the same objects from the same watches and queries them.

* `ledger`: which pod or worker holds which GPUs. Every other part reads and updates it. It uses
  neither the network nor the system clock.
* `asks`: the request of a pod or a job, parsed once.
* `inventory`: the conversion of a Node and its GPUNode into a node of placement.
* `queueing`: the queue over the ledger.
* `planning`: places for all workers of an attempt, or a place in the queue.
* `policies`: placement policies with the current forecast. `decisions`: the settings of all parts.
"""
