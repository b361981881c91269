# SPDX-License-Identifier: Apache-2.0
"""Decides which node and which GPUs a pod gets; a sidecar of a stock kube-scheduler.

    kube-scheduler ─ filter, prioritize, bind ─► verbs ──► filtering, ranking ─┐
                                                   └─────► binding ───────────┤
    operator ─ all workers or none ────► plan_api ─► access ─► planning ───────┼─► ledger ─► core
    API server ─ watches ─► reflectors ─► ledger.stores ──────────────────────┘

* `ledger`: who holds what. Everything else asks it and tells it; it knows no network and no clock.
* `filtering`, `ranking`, `planning`: what one call means, as functions of the ledger.
* `binding`: the only write to the API, and what became of it; `unconfirmed_writes` asks about
  bindings and plans that nothing has confirmed.
* `pod_ask`, `gang_ask`: what a pod or a job asks for, read once; of `gpu_ask`, `pod_resources` and
  `node_rules`.
* `wire`: kube-scheduler's messages. `verbs`, `plan_api`: HTTP around the above.
* `listener`, `peer_limits`, `connections`: what one address may cost. `health`: for the kubelet.
* `access`: who may call the plan API. `readiness`, `leadership`, `takeover`, `metrics`: how it
  does. `leader_endpoint`: the Service leads to the leader.
* `app`: how the parts are put together; `__main__` runs it.
"""
