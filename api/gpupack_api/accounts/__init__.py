# SPDX-License-Identifier: Apache-2.0
"""Accounts for GPU-hours: who held which GPUs and for how long, how busy they were, what it costs.

    API server ─ watches ─► book: claims ─► accountant ─► store (SQLite) ◄─ meter ◄─ readings
                                                              │
    gpupack-api ─ the caller's token ─► desk ─ rights ────────┴─► rows, JSON or CSV

A process of its own (`python -m gpupack_api.accounts`) since its file has one writer; gpupack-api,
of which there are several, hands the question on.

* `claim`, `moments`: what one object tells. `book`, `stores`: what all of them do. `inventory`: of
  which model a GPU is, and how much of it a share or slice counts.
* `accountant`: sums follow claims. `store`: both on disk. `meter`, `readings`: what only the
  passing of time tells.
* `desk`: who may know what. `app`, `settings`: how the parts are put together.

The arithmetic is gpupack_core.accounting's, by which the simulator bills, too.
"""
