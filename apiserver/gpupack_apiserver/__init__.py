# SPDX-License-Identifier: Apache-2.0
"""The REST API: answers about the cluster over HTTPS, from the API server's objects.

    API server ─ watches ─► read_model: gpupack_scheduler's ledger, GPUJobs, GPUQuotas
    caller ─ token ─► routes ─► rights: TokenReview, SubjectAccessReview ─► read_model ─► JSON

It is a separate process that sends no requests to the extender, decides nothing and writes nothing.
Any number of replicas can run.

* `read_model`: the cluster as in the ledger; `shown_job`: the shown part of a GPUJob.
* `node_views`, `history`: data that is computed once for all callers.
* `rights`: authentication and authorization of callers. `problems`: errors as answers.
* `accounts`: another process of the same image, the cost service, which records usage and which
  `cost_forwarding` calls.
* `host`: another process, which serves the calls that one machine without a cluster supports.
* `routes`: one file for each group of calls. `app`: assembly of the parts.
"""
