# SPDX-License-Identifier: Apache-2.0
"""The queue over the ledger: the next job is chosen where the free GPUs are known.

    plan API ── submit ──► Admissions ── cycle ──► core.queueing.Queue
                              │   ▲
      places held in the      │   │ what has changed: claims, nodes, GPUJobs
      ledger for admitted jobs▼   │
                            Ledger ┘        Turns ──► the operator is notified of turns

Running jobs are those that hold GPUs by the ledger's claims. Pending jobs are those that the
operator has submitted since this process leads. This package writes nothing: the operator writes
the answers that it gets.
"""
