# SPDX-License-Identifier: Apache-2.0
"""Operations: decisions of the queue that take longer than one cycle.

    phases ◄─ operation ◄─ status ◄─ preemptions, moves ◄─ consolidations
                       ◄─ admissions

Preemptions, moves, consolidations, and admissions with the growth of gangs have the same life
(phases.py). What outlives the process is in the API: statuses of GPUJobs, annotations of pods.
"""
