# SPDX-License-Identifier: Apache-2.0
"""Decides which node and which GPUs a pod gets; a sidecar of a stock kube-scheduler.

    kube-scheduler ─ filter, prioritize, bind ─► verbs ──► filtering, ranking ─┐
                                                   └─────► binding ───────────┤
    operator ─ all workers or none ────► plan_api ─► access ─► planning ───────┼─► ledger ─► core
    API server ─ watches ─► reflectors ─► ledger.stores ──────────────────────┘

* `ledger`: who holds what. Everything else asks it and tells it; it knows no network and no clock.
* `filtering`, `ranking`, `planning`: what one call means, as functions of the ledger.
* `binding`: the only write to the API, and what became of it; `doubts`: writes without an answer.
* `wire`: kube-scheduler's messages. `verbs`, `plan_api`: HTTP around the above.
* `access`: who may call the plan API. `readiness`, `leadership`, `takeover`, `metrics`: how it
  does.
* `app`: how the parts are put together; `__main__` runs it.
"""
