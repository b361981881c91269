# SPDX-License-Identifier: Apache-2.0
"""Answers people and programs about the cluster, over HTTPS, from what the API server holds.

    API server ─ watches ─► read_model: gpupack_scheduling's ledger, GPUJobs, GPUQuotas
    caller ─ token ─► routes ─► rights: TokenReview, SubjectAccessReview ─► read_model ─► JSON

A process of its own beside the extender, which it asks nothing; it decides nothing and writes
nothing. Any number of them can run.

* `read_model`: the cluster as the ledger has it; `shown_job`: a GPUJob as far as it is shown.
* `node_views`, `history`: what of it is worked out once for all who ask.
* `rights`: who calls, and what the API server lets him see. `problems`: errors as answers.
* `accounts`: another process of the same image, which counts what is held, and which
  `cost_forwarding` asks.
* `host`: another process, which serves those of the calls that one machine without a cluster can.
* `routes`: one file for each group of calls. `app`: how the parts are put together.
"""
