# SPDX-License-Identifier: Apache-2.0
"""What changes, told to whoever listens, at most once a second.

    read model ─ keys that changed ─► feed: one tick a second ─► log of the last ticks: keys alone
    listener: the tick that it has seen ─► frames: what changed since, of what it may see ─► pieces

A listener is a number, the last tick that it was told of, and no queue: what it is told next is
read from the state of then, so that whoever reads slowly gets less, not later. All who have seen
the same tick and may see the same are sent the same bytes, made once.
"""
