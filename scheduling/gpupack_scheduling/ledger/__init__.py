# SPDX-License-Identifier: Apache-2.0
"""The one place that knows who holds what.

    planned ──(GPUJob.status shows attempt n placed)──► written ─┐ a worker's place
       │ known not to be written                          │ attempt over
       ▼                                                  ▼
      free                                               free
                              assumed ──────────────► binding ──► landed ──► bound   a pod's place
    filter of a plain pod ──►   │ deadline               │          │          │
                                ▼                        ▼          ▼          ▼
                              free            not landed: free   pod terminal or gone: free
                                              unanswered: held until known

A worker's place and the place of the pod that runs it are the same devices: while a pod holds
them the worker's claim is not counted. What was bound stays held until the API says that the
pod is terminal or gone; the end of an attempt alone frees no device that a pod may still use.

All of it is derived: reflectors rebuild it from Nodes, GPUNodes, GPUJobs and Pods. Calls are
synchronous and come from one event loop; that no call awaits between looking and holding is the
lock that concurrent binds need.

* `workers`: which worker a pod is. `claims`: one place and who claims it.
* `claim_table`: claims, and the cluster's arrays kept equal to them.
* `tickets`: GPUs set aside for tickets of the kubelet's that no device is known for.
* `lingering`: pods that are gone and whose processes still hold GPUs.
* `ledger`: what calls do to the claims. `nodes`, `jobs`, `pods`: what watch events do.
* `placed_job`: a GPUJob as far as `jobs` reads it.
"""
