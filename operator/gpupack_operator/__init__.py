# SPDX-License-Identifier: Apache-2.0
"""The operator: the life of a GPUJob from `kubectl apply` to its result.

    kopf, watches ─► event router ─► work queue ─► reconcile: observe ─► decide ─► act ─► API
       └─► indices (cache) ──────────────────────▲           pure ▲      │ plan API (extender)
                                                                  └──────┘ answers

* `decision`: what to do, as pure functions of what was observed. Start at `decision.decide`.
* `manifests`: the Service, the Job and its pods, as pure functions of a GPUJob.
* `handlers`, `watches`, `index`, `cache`, `event_router`, `audit`: the API server's objects, and
  how the operator receives their changes.
* `work_queue`, `worker_pool`, `reconcile`, `actions`, `plans`: one job at a time, from observation
  to writes.
* `service`, `liveness`, `settings`: the process.
"""
