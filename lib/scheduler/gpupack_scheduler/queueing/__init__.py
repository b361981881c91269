# SPDX-License-Identifier: Apache-2.0
"""The queue over the ledger: the next job is chosen where the free GPUs are known.

    plan API ─► QueueOwner ── cycle ──► gpupack_queue.Queue ◄── changes ── ObservedQueue ◄─ API
                   │ ▲                                                        ▲
    places held    │ │ claims, nodes, GPUJobs                                 ├ standbys
    for admitted   ▼ │                                                        └ ReadOnlyQueue, for
    jobs          Ledger       Turns ──► the operator is notified                questions

The observed queue reports what the API's objects show, in every process. The owner decides, in the
leader only. Running jobs are those that hold GPUs by the ledger's claims. This package writes
nothing: the operator and the tasks of the extender write the answers that they get.
"""
