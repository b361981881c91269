# SPDX-License-Identifier: Apache-2.0
"""core's queue beside the ledger: who goes next is decided where it is known what is free.

    plan API ── submit ──► Admissions ── cycle ──► core.queueing.Queue
                              │   ▲
      places held in the      │   │ what has changed: claims, nodes, GPUJobs
      ledger for who is let in▼   │
                            Ledger ┘        Turns ──► the operator hears whose turn it is

What runs is whatever holds GPUs by the ledger's claims; what waits is what the operator has asked
for since this process leads. Nothing is written here: the operator writes what it is answered.
"""
