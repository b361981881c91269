# SPDX-License-Identifier: Apache-2.0
"""What the driver's facts mean for handing a GPU out.

    facts, XIDs ─► rules ─► findings ─► the worst is the grade, all of them its causes
                                            └─► hysteresis: worse at once, better after a while

An operator or a person decides what follows (GPUNode.spec); here it is only told.
"""
