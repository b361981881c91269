# SPDX-License-Identifier: Apache-2.0
"""Extender that decides which node and GPUs a pod gets; a sidecar of a stock kube-scheduler.

    kube-scheduler ─ filter, prioritize, bind ─► verbs ──► filtering, ranking ─┐
                                                   └─────► binding ───────────┤
    operator ─ all workers or none ────► plan_api ────────────────────────────┼─► scheduling
    API server ─ watches ─► reflectors ───────────────────────────────────────┘

gpupack_scheduler makes the decisions: ledger, requests, queue, plans. This package serves them,
with gpupack_httpserver, and acts on them.

* `filtering`, `ranking`: the result of a call of kube-scheduler, as functions of the ledger.
* `binding`: the only write of placements to the API, and its outcome; `unconfirmed_writes` asks
  about bindings and plans that nothing has confirmed.
* `queueing`: actions for the queue: gates, evictions, conditions, quotas' figures.
* `wire`: kube-scheduler's messages. `verbs`, `plan_api`: HTTP around the above.
* `readiness`, `leadership`, `takeover`, `metrics`: the state of the process. `health`: for the
  kubelet. `leader_endpoint`: routes the Service to the leader.
* `app`: how the parts are connected; `__main__` runs it.
"""
