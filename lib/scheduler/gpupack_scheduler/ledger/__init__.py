# SPDX-License-Identifier: Apache-2.0
"""The ledger: the one record of which pod or worker holds which GPUs.

    planned ──(GPUJob.status shows attempt n placed)──► written ─┐ a worker's place
       │ known not to be written                          │ attempt over
       ▼                                                  ▼
      free                                               free
                              assumed ──────────────► binding ──► landed ──► bound   a pod's place
    filter, standalone pod ──►  │ deadline               │          │          │
                                ▼                        ▼          ▼          ▼
                              free            not landed: free   pod terminal or gone: free
                                              unanswered: held until known

A worker's place and the place of the pod that runs it are the same devices: while a pod holds them,
the worker's claim is not counted. Bound devices stay held until the API says that the pod is
terminal or gone. The end of an attempt alone frees no device that a pod may still use.

All of it is derived: reflectors rebuild it from Nodes, GPUNodes, GPUJobs and Pods. Calls are
synchronous and come from one event loop. No call awaits between a look and a hold; this is the lock
that concurrent binds need.

* `workers`: the worker that a pod is. `claims`: one place and its claimant.
* `claim_table`: claims, and the cluster's arrays kept equal to them.
* `tickets`: GPUs set aside for the kubelet's device tokens whose devices are unknown.
* `lingering`: pods that are gone from the API and whose processes still hold GPUs.
* `ledger`: the effects of calls on claims. `nodes`, `jobs`, `pods`: the effects of watch events.
* `placed_job`: a GPUJob as far as `jobs` reads it.
"""
