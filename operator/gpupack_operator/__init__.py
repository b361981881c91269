# SPDX-License-Identifier: Apache-2.0
"""The operator: the life of a GPUJob from `kubectl apply` to its result.

    kopf, watches ─► hearing ─► work queue ─► reconcile: observe ─► decide ─► act ─► API server
       └─► indices (world) ──────────────────────▲           pure ▲      │ plan API (extender)
                                                                  └──────┘ answers

* `decision`: what to do, as pure functions of what was observed. Start at `decision.decide`.
* `manifests`: the Service, the Job and its pods, as pure functions of a GPUJob.
* `handlers`, `watches`, `index`, `world`, `hearing`, `audit`: what the API server holds, and how
  the operator hears of it.
* `work`, `reconcile`, `actions`, `plans`: one job at a time, from observation to writes.
* `service`, `liveness`, `settings`: the process.
"""
