# SPDX-License-Identifier: Apache-2.0
"""Long runs in machine code: the same decisions, in a fraction of the time.

engine/ says what holds. This is a second writing of the part of it, and of core, that the replays
of a trace need: jobs of one worker that ask for GPUs, a share, CPU and memory; nodes whose GPUs are
alike; the disciplines `drop` and `fifo-skip`; the policies `best-fit`, `fgd` and `bid-price`. The
policy learns in Python, with core's Learner and prices, between two stretches of the loop.

    inputs.py ─► tables.py ─► engine.py ─► holdings.py ─► scores.py    (numba compiles these four)
        └─ replay.py: informs the policy whenever it is due, and makes the record of the run

What differs in any job's start, end, node or GPU from engine/ is a bug; tests compare whole runs.
It is used where numba is installed (`gpupack-simulator[fast]`) and the run is of that kind.
"""
