# SPDX-License-Identifier: Apache-2.0
"""Long runs in machine code: the same decisions in a fraction of the time.

engine/ is the reference. This is a second implementation of the part of engine/, placement and
queue that replays of a trace need: jobs of one worker that request GPUs, a share, CPU and memory;
nodes with identical GPUs; the disciplines `drop` and `fifo-skip`; the policies `best-fit`, `fgd`
and `bid-price`. The policy learns in Python, with placement's DemandLearner and prices, between two
stretches of the loop.

    inputs.py ─► tables.py ─► engine.py ─► holdings.py ─► scores.py    (numba compiles these four)
        └─ replay.py: informs the policy whenever it is due, and makes the record of the run

Any difference from engine/ in a job's start, end, node or GPU is a bug; tests compare whole runs.
The package is used if numba is installed (`gpupack-simulator[fast]`) and the run is of that kind.
"""
