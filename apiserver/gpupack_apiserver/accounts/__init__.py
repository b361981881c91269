# SPDX-License-Identifier: Apache-2.0
"""The cost service: GPU-hours of every holder, their utilization, and their cost.

    API server ─ watches ─► claim_tracker ─► usage_recorder ─► store (SQLite) ◄─ meter ◄─ readings
                                                                  │
    gpupack-api ─ the caller's token ─► cost_queries ─ rights ────┴─► rows, JSON or CSV

It is a separate process (`python -m gpupack_apiserver.accounts`) since its file has one writer;
gpupack-api, which may have several replicas, forwards the question.

* `claim`, `pod_times`: the data of one object. `claim_tracker`, `stores`: the data of all objects.
  `inventory`: the model of a GPU, and how much of it a share or slice counts.
* `usage_recorder`: updates sums from claims. `store`: both on disk. `meter`, `readings`:
  measurements over time.
* `cost_queries`: authorized answers. `app`, `settings`: assembly of the parts.

The arithmetic is that of gpupack_cost, which the simulator also uses for costs.
"""
