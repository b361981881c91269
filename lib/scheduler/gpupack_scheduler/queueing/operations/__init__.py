# SPDX-License-Identifier: Apache-2.0
"""Operations: decisions of the queue that take longer than one cycle.

    operation ◄─ status ◄─ preemptions, victims, moves ◄─ consolidations ◄─ ongoing

Preemptions, moves, consolidations, and admissions with the growth of gangs (admissions.py) have the
same life (operation.py). What outlives the process is in the API: in statuses of GPUJobs and in
annotations of pods.
"""
