# SPDX-License-Identifier: Apache-2.0
"""Decides which node and which GPUs a pod gets; a sidecar of a stock kube-scheduler.

    kube-scheduler ─ filter, prioritize, bind ─► verbs ──► filtering, ranking ─┐
                                                   └─────► binding ───────────┤
    operator ─ all workers or none ────► plan_api ────────────────────────────┼─► scheduling
    API server ─ watches ─► reflectors ───────────────────────────────────────┘

What is decided is gpupack_scheduling's: ledger, asks, queue, plans. Here is what serves it, by
gpupack_serving, and what acts on it.

* `filtering`, `ranking`: what one call of kube-scheduler means, as functions of the ledger.
* `binding`: the only write of places to the API, and what became of it; `unconfirmed_writes` asks
  about bindings and plans that nothing has confirmed.
* `queueing`: what is done for the queue: gates, evictions, conditions, quotas' figures.
* `wire`: kube-scheduler's messages. `verbs`, `plan_api`: HTTP around the above.
* `readiness`, `leadership`, `takeover`, `metrics`: how it does. `health`: for the kubelet.
  `leader_endpoint`: the Service leads to the leader.
* `app`: how the parts are put together; `__main__` runs it.
"""
