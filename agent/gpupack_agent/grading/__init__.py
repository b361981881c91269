# SPDX-License-Identifier: Apache-2.0
"""The grading of GPUs: what the driver's facts mean for the use of a GPU.

    facts, XIDs ─► rules ─► findings ─► the worst is the grade, all of them its causes
                                            └─► hysteresis: worse at once, better after a while

The grade is only reported. The operator or an administrator decides what follows (GPUNode.spec).
"""
