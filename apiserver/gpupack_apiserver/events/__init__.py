# SPDX-License-Identifier: Apache-2.0
"""Changes, sent to listeners at most once a second.

    read model ─ keys that changed ─► feed: one tick a second ─► log of the last ticks: keys alone
    listener: the last tick that it saw ─► frames: later changes, of what it may see ─► pieces

A listener is a number, its last tick, and has no queue: the next content is read from the state at
that time, so that a slow reader gets less, not later. All listeners with the same tick and the same
permissions get the same bytes, made once.
"""
