# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that all ranks write together, each where the next attempt finds it.

folder    places of checkpoints, the latest one, permission to write (no torch)
checks    whether all ranks see one folder, and whether nothing of a checkpoint is missing
state     what is in them: parameters and optimiser state by name
"""
