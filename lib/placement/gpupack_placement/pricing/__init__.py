# SPDX-License-Identifier: Apache-2.0
"""The value of gaps on GPUs, from the mix of requests: the slow part of policy `bid-price`.

    gaps ─► cutting_stock (HiGHS) ─► knapsack

It is the only part of placement that needs more than numpy: highspy, imported when prices are
requested.
"""
