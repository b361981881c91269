# SPDX-License-Identifier: Apache-2.0
"""What the cluster holds, who asks for what, and who goes next: decisions, and no writes.

    API server ─ watches ─► ledger.stores ─► ledger ─► core.Cluster
    pods, GPUJobs ─► asks ─► core.Request ─┐
    GPUQuotas ─► queueing.quotas ──────────┼─► queueing.admissions ─► core.queueing ─► places
                                           └─► planning: the answer to one plan call

The extender acts on what is decided here; whoever wants to know what would be decided builds the
same from the same watches and asks.

* `ledger`: who holds what. Everything else asks it and tells it; it knows no network and no clock.
* `asks`: what a pod or a job asks for, read once.
* `inventory`: a Node and its GPUNode as one of core's.
* `queueing`: core's queue beside the ledger.
* `planning`: places for all workers of an attempt, or a place in the queue.
* `policies`: placement policies as they are informed now. `decisions`: settings of all that.
"""
